"""Benchmarks of the page's engine, each one module with one results file."""
