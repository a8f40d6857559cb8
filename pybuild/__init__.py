"""The build system: from a model to a folder that any static host serves. `python -m pybuild --help` lists it.

It may import `typedecide`, never the other way round. Runs from a checkout: it reads `web/` and `node_modules/`.
"""
