const REST_SCALE: f32 = 2048.0; // of what the nearest half of a number leaves: see split_halves.wgsl
