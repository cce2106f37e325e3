// 32 neighbours have a step of their own.
@group(0) @binding(2) var<uniform> params: Params;

// include row_own_steps
