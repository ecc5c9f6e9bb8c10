// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

#include "bench/harness/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "bench/harness/render_text.h"

namespace kvant::bench {
namespace {

constexpr double kWidth = 480, kHeight = 300;
constexpr double kLeft = 58, kRight = 12, kTop = 14, kBottom = 50;
constexpr double kDodge = 6;  // pixels between series at the same x

// Maps values to pixels.
class Frame {
 public:
  explicit Frame(const Chart& chart) : is_log_x_(chart.is_log_x) {
    bool first = true;
    for (const ChartSeries& series : chart.series) {
      for (const ChartPoint& point : series.points) {
        const double x = Scale(point.x);
        min_x_ = first ? x : std::min(min_x_, x);
        max_x_ = first ? x : std::max(max_x_, x);
        max_y_ = std::max({max_y_, point.y, point.high});
        first = false;
        if (!series.is_dashed) ticks_x_.insert(point.x);
      }
    }
    if (max_x_ == min_x_) {  // one length: in the middle
      min_x_ -= 1;
      max_x_ += 1;
    }
    ticks_y_ = RoundTicks(max_y_ > 0 ? max_y_ : 1);
  }
  double X(double value) const {
    const double part = (Scale(value) - min_x_) / (max_x_ - min_x_);
    // Room at both ends for ranges that stand apart.
    return kLeft + 24 + part * (kWidth - kLeft - kRight - 48);
  }
  double Y(double value) const {
    return kHeight - kBottom - value / ticks_y_.back() * (kHeight - kTop - kBottom);
  }
  const std::set<double>& ticks_x() const { return ticks_x_; }
  const std::vector<double>& ticks_y() const { return ticks_y_; }

 private:
  double Scale(double x) const { return is_log_x_ ? std::log2(std::max(x, 1.0)) : x; }

  bool is_log_x_;
  double min_x_ = 0, max_x_ = 0, max_y_ = 0;
  std::set<double> ticks_x_;
  std::vector<double> ticks_y_;
};

std::string Axes(const Chart& chart, const Frame& frame) {
  std::string svg;
  const double bottom = kHeight - kBottom;
  for (const double tick : frame.ticks_y()) {
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text class=\"tick\" text-anchor=\"end\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
        kLeft, kWidth - kRight, frame.Y(tick), frame.Y(tick), kLeft - 8, frame.Y(tick) + 4,
        fmt::format("{:g}", tick));
  }
  double last_x = -1e9;
  for (const double tick : frame.ticks_x()) {
    const double x = frame.X(tick);
    if (x - last_x < 36) continue;  // labels of close lengths would run into each other
    last_x = x;
    svg += fmt::format(
        "<line class=\"axis\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>"
        "<text class=\"tick\" text-anchor=\"middle\" x=\"{0:.1f}\" y=\"{3:.1f}\">{4:.0f}</text>\n",
        x, bottom, bottom + 5, bottom + 19, tick);
  }
  svg += fmt::format(
      "<line class=\"axis\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>\n", kLeft,
      kWidth - kRight, bottom, bottom);
  svg += fmt::format(
      "<text class=\"label\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
      (kLeft + kWidth - kRight) / 2, kHeight - 10, EscapeHtml(chart.x_label));
  svg += fmt::format(
      "<text class=\"label\" text-anchor=\"middle\" transform=\"translate(15 {:.1f}) "
      "rotate(-90)\">{}</text>\n",
      (kTop + bottom) / 2, EscapeHtml(chart.y_label));
  return svg;
}

// A different shape for each of four series, so that colour is not the only difference.
std::string Marker(std::size_t color, double x, double y) {
  switch (color % 4) {
    case 0:
      return fmt::format("<circle class=\"mark\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"/>", x, y);
    case 1:
      return fmt::format(
          "<rect class=\"mark\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"7\" height=\"7\"/>", x - 3.5,
          y - 3.5);
    case 2:
      return fmt::format("<path class=\"mark\" d=\"M{:.1f} {:.1f}l4.5 8h-9z\"/>", x, y - 5);
    default:
      return fmt::format("<path class=\"mark\" d=\"M{:.1f} {:.1f}l5 5l-5 5l-5 -5z\"/>", x, y - 5);
  }
}

std::string Series(const Chart& chart, const Frame& frame, const ChartSeries& series,
                   double offset) {
  std::string svg =
      fmt::format("<g class=\"s{}{}\">", series.color % 8, series.is_dashed ? " dashed" : "");
  std::string path;
  for (const ChartPoint& point : series.points) {
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", frame.X(point.x) + offset,
                        frame.Y(point.y));
  }
  svg += fmt::format("<path class=\"curve\" d=\"{}\"/>", path);
  for (const ChartPoint& point : series.points) {
    if (series.is_dashed) break;
    const double x = frame.X(point.x) + offset;
    svg += fmt::format(
        "<g><title>{}, {:.0f}: {} ({} - {}) {}</title>"
        "<path class=\"range\" d=\"M{:.1f} {:.1f}V{:.1f}M{:.1f} {:.1f}h8M{:.1f} {:.1f}h8\"/>{}</g>",
        EscapeHtml(series.name), point.x, Number(point.y), Number(point.low), Number(point.high),
        EscapeHtml(chart.y_label), x, frame.Y(point.low), frame.Y(point.high), x - 4,
        frame.Y(point.low), x - 4, frame.Y(point.high), Marker(series.color, x, frame.Y(point.y)));
  }
  return svg + "</g>\n";
}

std::string Legend(const Chart& chart) {
  std::string html;
  for (const ChartSeries& series : chart.series) {
    if (series.is_dashed) continue;
    html += fmt::format(
        "<span class=\"key\"><svg width=\"14\" height=\"14\" viewBox=\"0 0 14 14\" "
        "aria-hidden=\"true\"><g class=\"s{}\">{}</g></svg>{}</span>",
        series.color % 8, Marker(series.color, 7, 7), EscapeHtml(series.name));
  }
  return html;
}

}  // namespace

std::string EscapeHtml(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '&':
        escaped += "&amp;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::vector<double> RoundTicks(double max) {
  const double power = std::pow(10, std::floor(std::log10(max / 4)));
  double step = power;
  for (const double factor : {1.0, 2.0, 2.5, 5.0, 10.0}) {
    step = factor * power;
    if (max / step <= 6) break;
  }
  std::vector<double> ticks = {0};
  while (ticks.back() < max * (1 - 1e-9)) {
    ticks.push_back(step * static_cast<double>(ticks.size()));
  }
  return ticks;
}

std::string RenderChart(const Chart& chart) {
  const bool has_points =
      std::any_of(chart.series.begin(), chart.series.end(),
                  [](const ChartSeries& series) { return !series.points.empty(); });
  if (!has_points) return "";
  const Frame frame(chart);
  std::string svg = fmt::format(
      "<figure><figcaption>{0}</figcaption><div class=\"keys\">{1}</div>\n"
      "<svg class=\"chart\" viewBox=\"0 0 {2:.0f} {3:.0f}\" role=\"img\" aria-label=\"{0}\">\n",
      EscapeHtml(chart.title), Legend(chart), kWidth, kHeight);
  svg += Axes(chart, frame);
  std::size_t n_solid = 0;
  for (const ChartSeries& series : chart.series) n_solid += series.is_dashed ? 0 : 1;
  std::size_t place = 0;
  for (const ChartSeries& series : chart.series) {
    const double offset =
        series.is_dashed
            ? 0
            : kDodge * (static_cast<double>(place++) - (static_cast<double>(n_solid) - 1) / 2);
    svg += Series(chart, frame, series, offset);
  }
  return svg + "</svg></figure>\n";
}

}  // namespace kvant::bench
