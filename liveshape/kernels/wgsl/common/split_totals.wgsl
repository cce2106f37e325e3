// Before the loop over the depth of split factors: the sums of products with a remainder, and those of threads.
#unroll i < BLOCKS_DOWN
#unroll j < BLOCKS_ACROSS
    var rest_$i_$j = Sum();
#endunroll
#unroll n < STORE_TURNS
    var total_$i_$n = vec4<f32>();
#endunroll
#endunroll
