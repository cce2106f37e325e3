"""The bytes of a `.pte`: flatbuffers, the blob of the delegate, and the constants behind them."""
