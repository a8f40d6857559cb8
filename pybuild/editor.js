// What the page takes of CodeMirror: an editor for Python. `pybuild/editor.py` makes one file of it and all it imports.

import { closeBrackets, closeBracketsKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { python } from "@codemirror/lang-python";
import { bracketMatching, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { EditorState } from "@codemirror/state";
import { EditorView, keymap, lineNumbers } from "@codemirror/view";
import { classHighlighter } from "@lezer/highlight";

/**
 * An editor in `parent`, and how to read and replace its text. Its colours are up to a stylesheet: `cm-…` are the classes
 * of its parts, `tok-…` of the words. It must be in a shadow root: only there the editor's own styles are rules
 * of the CSSOM and no inline style, which the page's policy forbids.
 *
 * Tab indents; Escape before it moves on to what comes next on the page.
 * @param {HTMLElement} parent in a shadow root
 * @param {{text: string, label: string, describedBy: string, onRun: () => void, onChange: () => void}} options
 */
export function createEditor(parent, { text, label, describedBy, onRun, onChange }) {
  const view = new EditorView({
    parent,
    doc: text,
    extensions: [
      // Before the default keys, which make it a new line.
      keymap.of([{ key: "Mod-Enter", run: () => (onRun(), true) }]),
      keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap, indentWithTab]),
      lineNumbers(),
      history(),
      indentOnInput(),
      bracketMatching(),
      closeBrackets(),
      python(),
      indentUnit.of("    "),
      EditorState.tabSize.of(4),
      EditorView.lineWrapping,
      syntaxHighlighting(classHighlighter),
      EditorView.contentAttributes.of({ "aria-label": label, "aria-describedby": describedBy }),
      EditorView.updateListener.of((update) => update.docChanged && onChange()),
    ],
  });
  return {
    get text() {
      return view.state.doc.toString();
    },
    set text(next) {
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: next } });
    },
    focus: () => view.focus(),
  };
}
