// Scales and zero points in tensors, one number each; without ZEROS all zero points are zero.
// TScale: f32, f16
// TZero: i32, f32, f16
override ZEROS: bool = true;

// include qparams_params
@group(0) @binding(3) var<storage, read> zeros: array<TZero>;
@group(0) @binding(4) var<uniform> params: Params;

fn zero_at(place: u32) -> f32 {
    if (ZEROS) {
        return f32(zeros[place]);
    }
    return 0.0;
}
