// What the nearest half of a number leaves is a half times 2^11: see split_halves.wgsl.
const REST_SCALE: f32 = 2048.0;
const REST_FACTOR: f32 = 0.00048828125; // a division may round
