// Calls of programs with inputs and outputs as JSON, bytes in base64, as tests/web/test_programs.py asks for them: in Node
// and in a page alike.

const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

function textOf({ buffer, byteOffset, byteLength }) {
  let text = "";
  for (const byte of new Uint8Array(buffer, byteOffset, byteLength)) text += String.fromCharCode(byte);
  return btoa(text);
}

const input = (given) => (typeof given === "object" ? { ...given, data: bytesOf(given.data) } : given);

const output = (found) => (typeof found === "object" ? { ...found, data: textOf(found.data) } : found);

// The outputs of each call, or the error of the first that fails; `memory` is what is left when the program is closed.
export async function runCalls(liveshape, { file, calls }) {
  try {
    const model = await liveshape.load(file);
    const outputs = [];
    for (const inputs of calls) outputs.push([await model.run(...inputs.map(input))].flat().map(output));
    await model.close();
    return { outputs, memory: await liveshape.memory() };
  } catch (error) {
    return { failed: `${error.name}: ${error.message}` };
  }
}
