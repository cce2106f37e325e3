// Prompts in Pyodide in Node, without a GPU, as tests/web/test_chat_ids.py asks for them: the ids of each conversation by
// the tokenizer of a folder, or what it is told. A line of JSON each.

import fs from "node:fs";
import path from "node:path";
import { loadPyodide } from "../dist/pyodide/pyodide.mjs";
import { Tokenizer } from "../dist/tokenizers.js";

const [home, given] = process.argv.slice(2);
const dist = path.join(import.meta.dirname, "../dist");
const python = await loadPyodide({ indexURL: `${dist}/pyodide/` });
// As runtime.js has it.
const makeTokenizer = (text) => {
  const made = new Tokenizer(JSON.parse(text), {});
  return { encode: (text, special) => made.encode(text, { add_special_tokens: special }).ids };
};
python.registerJsModule("liveshape_js", { makeTokenizer });
python.FS.writeFile("/liveshape.zip", new Uint8Array(fs.readFileSync(`${dist}/liveshape.zip`)));
python.mountNodeFS("/home/given", home);
const prompt = python.runPython(`
import sys
sys.path.insert(0, "/liveshape.zip")
import json
from liveshape.errors import InputError
from liveshape.llm.text.tokenizer import Tokenizer

def prompt(folder, messages):
    try:
        return json.dumps(Tokenizer.load(f"/home/given/{folder}").apply_chat_template(json.loads(messages)))
    except InputError as error:
        return json.dumps(str(error))

prompt`);
for (const [folder, messages] of JSON.parse(given)) console.log(prompt(folder, JSON.stringify(messages)));
await new Promise((resolve) => process.stdout.write("", resolve)); // a pipe takes its time
process.exit();
