#if SUM_STEPS
#unroll i < BLOCKS_DOWN
#unroll n < STORE_TURNS
    var total_$i_$n = vec4<f32>();
#endunroll
#endunroll
#endif
