"""Models of text, speech and tables from transformers and from torch, at tiny sizes."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.models.zoo.vision import Only
from tests.support.programs import Input, TestProgram, integers

WORDS = 99


class Decoder(nn.Module):
    """A causal language model without its cache: logits of all positions.

    Without a mask attention of transformers 5.23 looks for packed sequences, and a delegate returns a value twice.
    """

    def __init__(self, model: nn.Module, masked: bool = False) -> None:
        super().__init__()
        self.model, self.masked = model, masked

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        mask = {"attention_mask": torch.ones_like(ids)} if self.masked else {}
        found: torch.Tensor = self.model(input_ids=ids, **mask, use_cache=False).logits
        return found


class Attending(nn.Module):
    """A decoder beside the states of an encoder."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        given = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "encoder_hidden_states": states}
        found: torch.Tensor = self.model(**given, use_cache=False).last_hidden_state
        return found


def causal(name: str, **options: Any) -> nn.Module:
    import transformers

    config = getattr(transformers, f"{name}Config")(
        vocab_size=WORDS, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=64, attn_implementation="eager", **options,
    )  # fmt: skip
    return Decoder(getattr(transformers, f"{name}ForCausalLM")(config), masked=True)


def phi3() -> nn.Module:
    return causal("Phi3", num_key_value_heads=2, pad_token_id=0, partial_rotary_factor=0.5)


def phi() -> nn.Module:
    return causal("Phi", partial_rotary_factor=0.5)


def gpt_neox() -> nn.Module:
    return causal("GPTNeoX", rotary_pct=0.25)


def stablelm() -> nn.Module:
    return causal("StableLm", num_key_value_heads=2, partial_rotary_factor=0.25)


def lfm2() -> nn.Module:
    return causal("Lfm2", num_key_value_heads=2, layer_types=["conv", "full_attention"], block_auto_adjust_ff_dim=False)


def bert() -> nn.Module:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=WORDS, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
        max_position_embeddings=64, attn_implementation="eager",
    )  # fmt: skip
    return Only(BertModel(config), "last_hidden_state")


def clip_text() -> nn.Module:
    from transformers import CLIPTextConfig, CLIPTextModel

    config = CLIPTextConfig(
        vocab_size=WORDS, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=64, attn_implementation="eager", eos_token_id=98,
    )  # fmt: skip
    return Only(CLIPTextModel(config), "last_hidden_state")


def t5() -> nn.Module:
    from transformers import T5Config, T5EncoderModel

    config = T5Config(vocab_size=WORDS, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4)
    return Only(T5EncoderModel(config), "last_hidden_state")


def whisper_config() -> Any:
    from transformers import WhisperConfig

    return WhisperConfig(
        vocab_size=WORDS, num_mel_bins=16, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, max_source_positions=50,
        max_target_positions=48, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        attn_implementation="eager",
    )  # fmt: skip


def whisper_encoder() -> nn.Module:
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    return Only(WhisperEncoder(whisper_config()), "last_hidden_state")


def whisper_decoder() -> nn.Module:
    from transformers.models.whisper.modeling_whisper import WhisperDecoder

    return Attending(WhisperDecoder(whisper_config()))


def wav2vec2() -> nn.Module:
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    config = Wav2Vec2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, conv_dim=(16, 16, 16),
        conv_stride=(5, 2, 2), conv_kernel=(10, 3, 3), num_feat_extract_layers=3, num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4, attn_implementation="eager",
    )  # fmt: skip
    return Only(Wav2Vec2Model(config), "last_hidden_state")


def mamba() -> nn.Module:
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(vocab_size=WORDS, hidden_size=32, state_size=8, num_hidden_layers=2, use_cache=False)
    return Decoder(MambaForCausalLM(config))


def vocoder() -> nn.Module:
    from transformers import SpeechT5HifiGan, SpeechT5HifiGanConfig

    config = SpeechT5HifiGanConfig(
        model_in_dim=16, upsample_initial_channel=32, upsample_rates=[4, 2], upsample_kernel_sizes=[8, 4],
        resblock_kernel_sizes=[3, 5], resblock_dilation_sizes=[[1, 3], [1, 3]], initializer_range=0.2,
    )  # fmt: skip
    return SpeechT5HifiGan(config)


class Recommender(nn.Module):
    """Categories as bags of embeddings, numbers through a network, and their products with each other."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(50, 16, mode="sum") for _ in range(3))
        self.dense = nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(16 + 6, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())
        self.register_buffer("pairs", torch.tril_indices(4, 4, -1))

    def forward(self, numbers: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        dense = self.dense(numbers)
        rows = torch.stack([dense, *(bag(categories[:, place]) for place, bag in enumerate(self.bags))], 1)
        products = rows @ rows.transpose(1, 2)
        among = products[:, self.pairs[0], self.pairs[1]]  # type: ignore[index]
        found: torch.Tensor = self.top(torch.cat((dense, among), 1))
        return found


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.layers = kind(12, 16, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layers(x)[0]
        return found


TEXT = (Input((1, "S"), torch.int64, integers(1, WORDS)),)
LENGTH = {"S": (2, 43)}
BAGS = Input(("B", 3, 4), torch.int64, integers(0, 50))

# The steps of nn.LSTM, nn.GRU and Mamba are unrolled by the exporter, so their length is fixed; it writes no program of
# the last two whose batch is live, either.
PROGRAMS = [
    *(
        TestProgram(build.__name__, build, TEXT, LENGTH, 1e-3, 1e-3)
        for build in (phi3, phi, gpt_neox, stablelm, bert, clip_text, t5, lfm2)
    ),
    TestProgram("whisper_encoder", whisper_encoder, (Input((1, 16, 100)),), {}, 1e-3, 1e-3),
    TestProgram(
        "whisper_decoder",
        whisper_decoder,
        (Input((1, "S"), torch.int64, integers(3, WORDS)), Input((1, 50, 64))),
        {"S": (2, 43)},
        1e-3,
        1e-3,
    ),
    TestProgram("mamba", mamba, (Input((3, 7), torch.int64, integers(1, WORDS)),), {}, 1e-3, 1e-3),
    TestProgram("vocoder", vocoder, (Input((1, "S", 16)),), LENGTH, 1e-3, 1e-3),
    TestProgram("wav2vec2", wav2vec2, (Input((1, "20*T")),), {"T": (20, 60)}, 1e-3, 1e-3),
    TestProgram(
        "recommender", Recommender, (Input(("B", 13)), BAGS), {"B": (1, 17)}, 1e-3, 1e-3, options={"rare": True}
    ),
    TestProgram("lstm", lambda: Recurrent(nn.LSTM), (Input(("B", 7, 12)),), {"B": (2, 9)}, 1e-4, 1e-4),
    TestProgram("gru", lambda: Recurrent(nn.GRU), (Input((3, 7, 12)),), {}, 1e-4, 1e-4),
]
