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
  /** The name of the dtype where the array does not tell it: "bool" of a Uint8Array, or any dtype of a Uint8Array of bytes. */
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
  /** Bytes of the download (of a URL), bytes of weights uploaded, kernels compiled. */
  stage: "download" | "upload" | "compile";
  done: number;
  total: number;
}

export interface DeviceInfo {
  name: string;
  software: boolean;
  half: boolean;
  /** Whether matrix units multiply, as Chromium has them with --enable-unsafe-webgpu. */
  matrices: boolean;
  /** Milliseconds from the start of the worker until each part was there; `ready` is the whole. */
  bootMs: { archive: number; gpu: number; python: number; ready: number };
  /** Whether Python can wait for the GPU inside of a call (JSPI). */
  waits: boolean;
}

export interface DeviceOptions {
  powerPreference?: "high-performance" | "low-power";
  /** The only features to use, where the adapter has them; all by default. */
  features?: ("shader-f16" | "subgroups" | "chromium-experimental-subgroup-matrix")[];
  /** The most to ask for, by WebGPU's names, such as maxStorageBufferBindingSize; the adapter's by default. */
  limits?: Record<string, number>;
}

/** Opens the GPU and starts Python, if that was not done yet; with options, before the first load. */
export function device(options?: DeviceOptions): Promise<DeviceInfo>;
/** Bytes of GPU memory in use. */
export function memory(): Promise<number>;
/** Ends the worker and frees everything; the next load starts it again. */
export function stop(): Promise<void>;

export interface CachedFile {
  url: string;
  /** Bytes that are here, of `size`. */
  bytes: number;
  size: number;
  complete: boolean;
}

/** Downloads that are kept in this browser; not in Node. */
export function cached(): Promise<CachedFile[]>;
/** Removes all of them; what a model has open goes with the next call after it is closed. Not in Node. */
export function clearCache(): Promise<void>;

export interface LoadOptions {
  onProgress?: (progress: Progress) => void;
  /** Aborts loading, and frees everything. */
  signal?: AbortSignal;
  /** Whether a file by URL is kept for the next load; true by default. */
  cache?: boolean;
  /** Of requests, as of fetch. */
  credentials?: "omit" | "same-origin" | "include";
  headers?: Record<string, string>;
}

export class Model {
  readonly inputs: TensorInfo[];
  readonly outputs: TensorInfo[];
  /** Runs once, at any live shape: a single output as it is, several as a list. */
  run(...inputs: (Tensor | number | boolean)[]): Promise<Tensor | number | (Tensor | number)[]>;
  close(): Promise<void>;
}

/** Loads a program (.pte): a URL, a File, or in Node a path. */
export function load(
  source: string | URL | Blob,
  options?: LoadOptions & { method?: string },
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
  /** The kind of activations: the one that was asked for, or what "auto" is on this device. */
  readonly activations: "float32" | "float16" | "int8";
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
  options?: LoadOptions & {
    /** How a GGUF file or a Hugging Face folder is quantized, as `liveshape export --quant` does. */
    quant?: "auto" | "4w" | "8da4w" | "8w" | "none";
    maxContext?: number;
    halfCache?: boolean;
    activations?: "float32" | "float16" | "int8" | "auto";
  },
): Promise<LanguageModel>;
