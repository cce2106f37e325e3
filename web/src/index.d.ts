// Types of liveshape in a page, and in Node.

export type Numbers =
  | Float32Array
  | Float64Array
  | Int8Array
  | Int16Array
  | Int32Array
  | BigInt64Array
  | Uint8Array
  | Uint16Array
  | Uint32Array
  | BigUint64Array;

export interface Tensor {
  data: Numbers;
  shape: number[];
  /** The name of the dtype where the array does not tell it, such as "bool" of a Uint8Array. */
  dtype?: string;
}

export interface TensorInfo {
  name: string;
  dtype: string;
  /** The largest size of each dimension. */
  bounds: number[];
  dims: { status: "static" | "dynamic" | "unknown"; min: number; max: number }[];
}

export interface Progress {
  done: number;
  total: number;
}

export interface DeviceInfo {
  name: string;
  software: boolean;
  half: boolean;
  /** Milliseconds from the start of the worker until each part was there; `ready` is the whole. */
  bootMs: { archive: number; gpu: number; python: number; ready: number };
}

/** Opens the GPU and starts Python, if that was not done yet. */
export function device(): Promise<DeviceInfo>;
/** Bytes of GPU memory in use. */
export function memory(): Promise<number>;
/** Ends the worker and frees everything; the next load starts it again. */
export function stop(): Promise<void>;

export class Model {
  readonly inputs: TensorInfo[];
  readonly outputs: TensorInfo[];
  /** Runs once, at any live shape: a single output as it is, several as a list. */
  run(...inputs: (Tensor | number | boolean)[]): Promise<Tensor | (Tensor | number)[]>;
  close(): Promise<void>;
}

/** Loads a program (.pte): a URL, a File, or in Node a path. */
export function load(
  source: string | URL | Blob,
  options?: { method?: string; onProgress?: (progress: Progress) => void },
): Promise<Model>;

export interface Message {
  role: "system" | "user" | "assistant";
  content: string;
}

export interface GenerationOptions {
  maxTokens?: number;
  temperature?: number;
  topK?: number;
  topP?: number;
  minP?: number;
  repetitionPenalty?: number;
  seed?: number;
  stop?: string | string[];
  /** Continue the text as it is, without a chat template. */
  raw?: boolean;
  /** Reuse what this prompt shares with the last one. */
  keepPrefix?: boolean;
  signal?: AbortSignal;
}

export interface Response {
  text: string;
  token: number;
  finishReason: "stop" | "length" | null;
  promptTokens: number;
  tokens: number;
  tokensPerSecond: number;
}

export class LanguageModel {
  readonly maxContext: number;
  readonly vocabSize: number;
  /** Whether it has a chat template. */
  readonly chat: boolean;
  stream(prompt: string | number[] | Message[], options?: GenerationOptions): AsyncGenerator<Response, void>;
  generate(prompt: string | number[] | Message[], options?: GenerationOptions): Promise<string>;
  encode(text: string): Promise<number[]>;
  close(): Promise<void>;
}

/**
 * Loads a language model: a GGUF file or a folder by its URL, a GGUF file as a File, files by name or as a page's file
 * input has them, or in Node a path. A folder is one of `liveshape export`, or one of Hugging Face: config.json,
 * tokenizer.json and safetensors.
 */
export function loadLanguageModel(
  source: string | URL | Blob | Iterable<File> | Record<string, Blob | Uint8Array | string>,
  options?: {
    /** How a GGUF file or a Hugging Face folder is quantized, as `liveshape export --quant` does. */
    quant?: "auto" | "4w" | "8da4w" | "8w" | "none";
    maxContext?: number;
    halfCache?: boolean;
    activations?: "float32" | "float16" | "int8" | "auto";
    onProgress?: (progress: Progress) => void;
  },
): Promise<LanguageModel>;
