"""Texts that try to run in a page or to fetch from elsewhere, and the ear that hears if one of them does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

RUN = "window.__pwned=1"

# Elements that run or fetch by being there.
ELEMENTS = f"""<script>{RUN}</script>
<SCRIPT SRC=//evil.example/x.js></SCRIPT>
<script\n>{RUN}</script\n>
</script><script>{RUN}</script>
</style><script>{RUN}</script>
</title><script>{RUN}</script>
</textarea><script>{RUN}</script>
--><script>{RUN}</script>
]]><script>{RUN}</script>
<scr<script>ipt>{RUN}</scr</script>ipt>
<img src=x onerror={RUN}>
<img src="https://evil.example/pixel.png">
<img srcset="https://evil.example/pixel.png 1x">
<img src=x:x onerror="{RUN}"//
<image src=x onerror={RUN}>
<svg onload={RUN}>
<svg><script>{RUN}</script></svg>
<svg><animate onbegin={RUN} attributeName=x dur=1s>
<svg><use href="data:image/svg+xml,<svg id=x xmlns='http://www.w3.org/2000/svg' onload='{RUN}'/>#x"/></svg>
<svg><a xlink:href="javascript:{RUN}"><text y=20>x</text></a></svg>
<svg><foreignObject><iframe srcdoc="<script>parent.{RUN}</script>"></iframe></foreignObject></svg>
<math><mtext></mtext><script>{RUN}</script></math>
<math href="javascript:{RUN}">x</math>
<math><annotation-xml encoding="text/html"><img src=x onerror={RUN}></annotation-xml></math>
<math><mglyph><style></math><img src=x onerror={RUN}>
<iframe src="javascript:parent.{RUN}"></iframe>
<iframe srcdoc="<script>parent.{RUN}</script>"></iframe>
<iframe src="https://evil.example/"></iframe>
<object data="javascript:{RUN}"></object>
<object data="https://evil.example/x.swf"></object>
<embed src="javascript:{RUN}">
<video src=x onerror={RUN}></video>
<video><source onerror={RUN}></video>
<video poster="https://evil.example/pixel.png"></video>
<audio src=x onerror={RUN}></audio>
<audio src="https://evil.example/x.mp3" autoplay></audio>
<body onload={RUN}>
<details open ontoggle={RUN}>
<input autofocus onfocus={RUN}>
<select autofocus onfocus={RUN}></select>
<marquee onstart={RUN}>x</marquee>
<div onmouseover={RUN} style="position:fixed;inset:0">x</div>
<a href="javascript:{RUN}">x</a>
<a href=" javascript:{RUN}">x</a>
<a href="https://evil.example" ping="https://evil.example/ping">x</a>
<form action="javascript:{RUN}"><button>x</button></form>
<form><button formaction="javascript:{RUN}">x</button></form>
<base href="https://evil.example/">
<link rel=stylesheet href="https://evil.example/x.css">
<link rel=prefetch href="https://evil.example/">
<link rel=dns-prefetch href="//evil.example">
<link rel=icon href="https://evil.example/icon.png">
<meta http-equiv=refresh content="0;url=javascript:{RUN}">
<meta http-equiv=refresh content="0;url=https://evil.example/">
<style>@import "https://evil.example/x.css";</style>
<style>*{{background:url(https://evil.example/x.png)}}</style>
<p style="background:url(https://evil.example/x.png)">x</p>
<template><script>{RUN}</script></template>
<noscript><p title="</noscript><img src=x onerror={RUN}>">
<p id="thread">x</p><p id="message">x</p><form id=forms name=body>
<x onclick={RUN}>x</x>
<!--><img src=x onerror={RUN}>-->
<![CDATA[<img src=x onerror={RUN}>]]>
<?xml version="1.0"?><x:script xmlns:x="http://www.w3.org/1999/xhtml">{RUN}</x:script>
&lt;script&gt;{RUN}&lt;/script&gt;
&#60;script&#62;{RUN}&#60;/script&#62;
\\u003cscript\\u003e{RUN}\\u003c/script\\u003e
\u2028{RUN}\u2029
\x00<script>{RUN}</script>
\ufeff<script>{RUN}</script>
"onmouseover={RUN} x="
' onfocus={RUN} autofocus='
` onerror={RUN} `
`+{RUN}+`
';{RUN};//
";{RUN};//
\\";{RUN};//
${{{RUN}}}
{{{{constructor.constructor('{RUN}')()}}}}
</script
{{{{script}}}}
{{{{data}}}}
__proto__
constructor
toString""".replace("\\x00", "\x00").split("\n")

ADDRESSES = f"""javascript:{RUN}
JaVaScRiPt:{RUN}
javascript&colon;{RUN}
javascript&#58;{RUN}
&#106;avascript:{RUN}
&#x6A;avascript:{RUN}
java\tscript:{RUN}
java&Tab;script:{RUN}
java&NewLine;script:{RUN}
\x01javascript:{RUN}
\u00a0javascript:{RUN}
\u200bjavascript:{RUN}
%6aavascript:{RUN}
javascript://https://example.org/%0a{RUN}
https:javascript:{RUN}
javascript:https://example.org
vbscript:msgbox(1)
livescript:{RUN}
data:text/html,<script>opener.{RUN}</script>
data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==
data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' onload='{RUN}'/>
DATA:text/html,x
blob:https://evil.example/x
file:///etc/passwd
filesystem:https://evil.example/x
view-source:https://evil.example
about:blank
//evil.example/x
\\\\\\\\evil.example\\x
/\\evil.example
?x=1
#message
https://evil.example/"onmouseover={RUN}//
https://evil.example/'onmouseover={RUN}//
https://evil.example/><img src=x onerror={RUN}>
https://evil.example/`onerror={RUN}`
https://[evil
https://user:pass@evil.example/
HTTPS://EVIL.EXAMPLE/x
http://evil.example:99999/""".split("\n")

PLACES = ["[x]({})", "![x]({})", "<{}>", "{}", '[x](<{}> "title")', "[![x]({0})]({0})", "[x][1]\n\n[1]: {}"]
TEXTS = [
    "```{}\nx\n```",
    "`{}`",
    "| {} |\n| --- |\n| {} |",
    "# {}",
    "> {}",
    "- [x] {}",
    "$${}$$",
    r"$\text{{{}}}$",
    r"\(\href{{{}}}{{x}}\)",
]
FORMULAS = [
    rf"$\href{{javascript:{RUN}}}{{x}}$",
    rf"$\url{{javascript:{RUN}}}$",
    rf"$\htmlClass{{x\" onload={RUN}}}{{x}}$",
    r"$\includegraphics{https://evil.example/x.png}$",
    rf"$\color{{red;background:url(https://evil.example)}}{{x}}<img src=x onerror={RUN}>$",
    r"$\begin{constructor} x \end{constructor}$",
    r"$\begin{__proto__} x \end{__proto__}$",
    r"$\constructor \toString \__proto__ \hasOwnProperty$",
    r"$\def\x{\x\x}\x$",
    rf"```constructor\n{RUN}\n```",
    "```__proto__\nx\n```",
]


def hostile_texts() -> list[str]:
    """Every text, and every address in every place of Markdown that takes one."""
    placed = [place.format(address, address) for place in PLACES for address in ADDRESSES]
    within = [text.format(element, element) for text in TEXTS for element in ELEMENTS[:12:3]]
    return [*ELEMENTS, *placed, *within, *FORMULAS]


# What a page must not have in it, wherever it stands: elements and attributes that run or fetch, addresses but http(s).
AUDIT = """() => [...document.querySelectorAll("*")].filter((each) => {
  const kept = ["SCRIPT", "STYLE", "LINK", "META", "BODY"].includes(each.tagName) && !each.closest("main, nav, aside");
  const tag = each.tagName.toLowerCase();
  const runs = /^(script|img|image|iframe|object|embed|video|audio|source|base|link|meta|style|foreignobject)$/;
  const names = [...each.attributes].map(({ name }) => name);
  const address = each.getAttribute("href") ?? each.getAttribute("xlink:href") ?? "#";
  const isLink = each.tagName === "A" && /^https?:/.test(each.protocol) && each.relList?.contains("noopener");
  return !kept && (runs.test(tag) || names.some((name) => /^(on|src|action|formaction|ping|data$|poster)/.test(name)) ||
    !(address.startsWith("#") || isLink));
}).map((each) => each.outerHTML.slice(0, 300))"""

_EAR = """
window.__pwned = undefined;
window.__heard = [];
for (const name of ["alert", "confirm", "prompt"]) window[name] = () => window.__heard.push(name);
document.addEventListener("securitypolicyviolation", (event) => window.__heard.push(
  `${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
"""


@contextmanager
def listening(browser: Browser, allowed: str) -> Iterator[Page]:
    """A page that is listened to: at its end nothing has run, nothing but what begins as `allowed` was asked for, the
    policy had nothing to refuse, and nothing stands in it that could do so later."""
    context = browser.new_context(viewport={"width": 1100, "height": 800})
    page = context.new_page()
    page.add_init_script(_EAR)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
    page.on("popup", lambda popup: wrong.append(f"popup: {popup.url}"))
    page.on(
        "request", lambda asked: None if asked.url.startswith((allowed, "data:image/svg")) else wrong.append(asked.url)
    )
    yield page
    assert page.evaluate("[window.__pwned, Object.prototype.polluted, ...window.__heard]") == [None, None]
    assert page.evaluate(AUDIT) == []
    assert wrong == []
    context.close()
