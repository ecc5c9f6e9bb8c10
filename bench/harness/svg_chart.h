// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// A line chart with ranges as inline SVG: no script, no fonts, colours by CSS classes so that
// light, dark and print differ by style only.
#pragma once

#include <string>
#include <vector>

namespace kvant::bench {

struct ChartPoint {
  double x = 0, y = 0;
  double low = 0, high = 0;  // range; equal to y where there is none
};

struct ChartSeries {
  std::string name;
  std::vector<ChartPoint> points;  // ascending x; joined by a line
  bool is_dashed = false;          // a fitted line: no markers
  std::size_t color = 0;           // class "s<color>", eight of them
};

struct Chart {
  std::string title, x_label, y_label;
  std::vector<ChartSeries> series;
  bool is_log_x = true;  // base 2
};

/// The y axis begins at 0. Series of the same x stand a few pixels apart, so that equal values are
/// both seen. Empty text where there is no point.
std::string RenderChart(const Chart& chart);

/// <, >, &, ", ' as entities.
std::string EscapeHtml(const std::string& text);
/// Round tick values from 0 to at least `max`, four to eight of them. max > 0.
std::vector<double> RoundTicks(double max);

}  // namespace kvant::bench
