// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The style sheet of the HTML report. Series colours keep apart for the common kinds of colour
// blindness (Okabe and Ito 2008), in a darker set for light and a lighter set for dark backgrounds.
#pragma once

#include <string_view>

namespace kvant::bench {

inline constexpr std::string_view kHtmlStyle = R"css(
:root { --bg: #ffffff; --fg: #1c1e21; --soft: #5c6370; --line: #d8dce2; --card: #f6f7f9;
  --good: #0a6b3d; --bad: #b3261e;
  --s0: #0064a4; --s1: #c45100; --s2: #00795a; --s3: #a4447e; --s4: #8a6d00; --s5: #2a8fc4;
  --s6: #444a52; --s7: #7a4ec2; }
@media (prefers-color-scheme: dark) { :root { --bg: #15181c; --fg: #e7e9ec; --soft: #a3abb7;
  --line: #363c45; --card: #1d2127; --good: #6fd39c; --bad: #ff9a91;
  --s0: #5cb3f0; --s1: #f0a050; --s2: #3fc79a; --s3: #e295c3; --s4: #e6d04a; --s5: #9ad5f5;
  --s6: #b9c0ca; --s7: #b79af0; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--fg);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0.5rem 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2rem 0 0.6rem; }
.verdict { padding: 0.7rem 0.9rem; border-left: 5px solid var(--soft); background: var(--card);
  margin: 0 0 1rem; overflow-wrap: anywhere; }
.verdict.good { border-color: var(--good); } .verdict.good b { color: var(--good); }
.verdict.bad { border-color: var(--bad); } .verdict.bad b { color: var(--bad); }
.verdict b { text-transform: uppercase; letter-spacing: 0.03em; }
.facts { color: var(--soft); margin: 0; padding-left: 1.1rem; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; margin: 0.5rem 0 1rem; }
table { border-collapse: collapse; font-size: 0.86rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 0.3rem 0.7rem 0.3rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
table.data td, table.data th { white-space: nowrap; }
th { color: var(--soft); font-weight: 600; }
td.num, th.num { text-align: right; }
tr.fail td:first-child { color: var(--bad); font-weight: 700; }
tr.pass td:first-child { color: var(--good); }
figure { margin: 1.2rem 0; } figcaption { font-weight: 600; }
.keys { display: flex; flex-wrap: wrap; gap: 0.1rem 1rem; font-size: 0.86rem; color: var(--soft); }
.key { display: inline-flex; align-items: center; gap: 0.35rem; }
svg.chart { width: 100%; height: auto; max-width: 42rem; display: block; }
.grid { stroke: var(--line); stroke-width: 1; } .axis { stroke: var(--soft); stroke-width: 1; }
.tick { fill: var(--soft); font-size: 12px; } .label { fill: var(--fg); font-size: 13px; }
.curve { fill: none; stroke: currentColor; stroke-width: 1.6; }
.range { fill: none; stroke: currentColor; stroke-width: 1.4; }
.mark { fill: currentColor; stroke: var(--bg); stroke-width: 1; }
.dashed .curve { stroke-dasharray: 5 4; opacity: 0.75; }
.s0 { color: var(--s0); } .s1 { color: var(--s1); } .s2 { color: var(--s2); }
.s3 { color: var(--s3); } .s4 { color: var(--s4); } .s5 { color: var(--s5); }
.s6 { color: var(--s6); } .s7 { color: var(--s7); }
td { overflow-wrap: anywhere; }
pre { background: var(--card); padding: 0.7rem 0.9rem; overflow-x: auto; font-size: 0.86rem;
  white-space: pre-wrap; overflow-wrap: anywhere; }
@media print { :root { --bg: #ffffff; --fg: #000000; --soft: #444444; --line: #bbbbbb;
  --card: #ffffff; --good: #0a6b3d; --bad: #b3261e;
  --s0: #0064a4; --s1: #c45100; --s2: #00795a; --s3: #a4447e; --s4: #8a6d00; --s5: #2a8fc4;
  --s6: #444a52; --s7: #7a4ec2; }
  body { font-size: 10pt; } main { max-width: none; padding: 0; }
  figure, tr, pre { break-inside: avoid; } h2 { break-after: avoid; }
  .scroll { overflow: visible; } table { font-size: 7.5pt; }
  table.data td, table.data th { white-space: normal; padding-right: 0.5rem; }
  svg.chart { max-width: 11cm; } }
)css";

}  // namespace kvant::bench
