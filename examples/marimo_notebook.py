# /// script
# requires-python = ">=3.11"
# dependencies = ["marimo", "typedecide[native]; sys_platform != 'emscripten'"]
# ///

import marimo

__generated_with = "0.25.2"
app = marimo.App()


@app.cell
def _():
    import sys

    import marimo as mo

    return mo, sys


@app.cell
def _(mo):
    mo.md("""
    # Decisions in a notebook

    The same questions, answered in CPython by onnxruntime, and in marimo's WebAssembly build by the engine of a bundle
    in this browser. The bundle is the folder `dist` of the working directory, or of the notebook's address.
    """)
    return


@app.cell
async def _(mo, sys):
    if sys.platform == "emscripten":
        import micropip

        bundle = f"{mo.notebook_location()}/dist/"
        await micropip.install(f"{bundle}pyodide/typedecide-0.1.0-py3-none-any.whl")
        import typedecide.browser

        engine = await typedecide.browser.connect(bundle)
    else:
        from typedecide.native import NativeEngine

        engine = NativeEngine("dist")
    engine.info["model"]["name"]
    return (engine,)


@app.cell
def _(mo):
    text = mo.ui.text_area(
        "My card was charged twice for order 1182, and nobody answers my mails.",
        label="Text",
        full_width=True,
    )
    text
    return (text,)


@app.cell
async def _(engine, mo, text):
    import inspect

    from typedecide import Choice, Noul

    done = engine.decide(
        text.value,
        {
            "team": Choice("Which team should handle this?", ["billing", "shipping", "other"]),
            "refund": Noul("Does the customer want money back?"),
        },
    )
    if inspect.isawaitable(done):
        done = await done
    mo.ui.table(
        [
            {
                "question": id,
                "answer": one.answer.choice,
                "probability": round(max(one.answer.probabilities), 4),
            }
            for id, one in done.answers.items()
        ],
        selection=None,
    )
    return


if __name__ == "__main__":
    app.run()
