// SPDX-License-Identifier: Apache-2.0
// What torch chooses for tensors on cuda and has no CPU kernel for gets one here, from the nearest
// operators of the CPU; redirect.cc then finds it. So a program's ops have the names that they have
// on a GPU: cudnn_convolution, cudnn_batch_norm, efficient attention. Not so recurrent layers: the
// real _cudnn_rnn becomes a loop over linear layers and fused cells, as on a GPU without cuDNN.
#include "tests/fakes/torch_cuda/cuda_only.h"

#include <ATen/ATen.h>
#include <ATen/native/RNN.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <torch/library.h>

#include <string>
#include <tuple>
#include <vector>

namespace nanwatch::fake {
namespace {

using at::Tensor;
using MaybeTensor = std::optional<Tensor>;
using Ints = c10::SymIntArrayRef;

const std::vector<c10::SymInt> kNoPadding3 = {0, 0, 0};

Tensor CudnnConvolution(const Tensor& self, const Tensor& weight, Ints padding, Ints stride,
                        Ints dilation, c10::SymInt groups, bool, bool, bool) {
  return at::convolution_symint(self, weight, {}, stride, padding, dilation, /*transposed=*/false,
                                Ints(kNoPadding3).slice(0, padding.size()), std::move(groups));
}

Tensor CudnnConvolutionTranspose(const Tensor& self, const Tensor& weight, Ints padding,
                                 Ints output_padding, Ints stride, Ints dilation,
                                 c10::SymInt groups, bool, bool, bool) {
  return at::convolution_symint(self, weight, {}, stride, padding, dilation, /*transposed=*/true,
                                output_padding, std::move(groups));
}

Tensor DepthwiseConvolution(const Tensor& self, const Tensor& weight, Ints, const MaybeTensor& bias,
                            Ints stride, Ints padding, Ints dilation) {
  return at::convolution_symint(self, weight, bias, stride, padding, dilation, /*transposed=*/false,
                                Ints(kNoPadding3).slice(0, padding.size()), self.sym_size(1));
}

std::tuple<Tensor, Tensor, Tensor, Tensor> CudnnBatchNorm(const Tensor& input, const Tensor& weight,
                                                          const MaybeTensor& bias,
                                                          const MaybeTensor& running_mean,
                                                          const MaybeTensor& running_var,
                                                          bool training, double momentum,
                                                          double epsilon) {
  auto [out, mean, inverse] = at::native_batch_norm(input, weight, bias, running_mean, running_var,
                                                    training, momentum, epsilon);
  return {out, mean, inverse, at::empty({0}, input.options().dtype(at::kByte))};
}

std::tuple<Tensor, Tensor, Tensor> CudnnBatchNormBackward(
    const Tensor& input, const Tensor& grad, const Tensor& weight, const MaybeTensor& running_mean,
    const MaybeTensor& running_var, const MaybeTensor& mean, const MaybeTensor& inverse,
    double epsilon, const Tensor&) {
  return at::native_batch_norm_backward(grad, input, weight, running_mean, running_var, mean,
                                        inverse, /*train=*/true, epsilon, {true, true, true});
}

std::tuple<Tensor, Tensor> RmsNormBackward(const Tensor& grad, const Tensor& input,
                                           at::IntArrayRef shape, const Tensor& rstd,
                                           const MaybeTensor& weight, std::array<bool, 2>) {
  std::vector<int64_t> inner, outer;
  const auto split = input.dim() - static_cast<int64_t>(shape.size());
  for (int64_t i = 0; i < input.dim(); ++i) (i < split ? outer : inner).push_back(i);
  const bool weighted = weight && weight->defined();
  const Tensor normal = input.to(at::kFloat) * rstd.to(at::kFloat);
  const Tensor of_output = grad.to(at::kFloat);
  const Tensor of_normal = weighted ? of_output * weight->to(at::kFloat) : of_output;
  const Tensor of_input =
      rstd * (of_normal - normal * (of_normal * normal).mean(inner, /*keepdim=*/true));
  Tensor of_weight;
  if (weighted) {
    const Tensor product = of_output * normal;
    of_weight = (outer.empty() ? product : product.sum(outer)).to(weight->scalar_type());
  }
  return {of_input.to(input.scalar_type()), of_weight};
}

// ---- attention

int64_t ChooseAttention(const Tensor& query, const Tensor& key, const Tensor& value,
                        const MaybeTensor& mask, double dropout, bool, std::optional<double>,
                        bool is_grouped) {
  const bool efficient = query.dim() == 4 && dropout == 0 && !is_grouped &&
                         query.size(3) == value.size(3) && query.size(1) == key.size(1) &&
                         !(mask && mask->defined() && mask->requires_grad());
  return static_cast<int64_t>(efficient ? sdp::SDPBackend::efficient_attention
                                        : sdp::SDPBackend::math);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> EfficientAttention(
    const Tensor& query, const Tensor& key, const Tensor& value, const MaybeTensor& bias, bool,
    double dropout, bool is_causal, std::optional<double> scale) {
  auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
      query, key, value, dropout, is_causal, bias, scale);
  const Tensor none = at::zeros({}, query.options().dtype(at::kLong));
  return {out, logsumexp, none, none.clone()};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> EfficientAttentionBackward(
    const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value,
    const Tensor& bias, const Tensor& out, const Tensor& logsumexp, const Tensor&, const Tensor&,
    double dropout, std::array<bool, 4>, bool is_causal, std::optional<double> scale) {
  if (!grad.defined()) return {};
  auto [of_query, of_key, of_value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      grad, query, key, value, out, logsumexp, dropout, is_causal,
      bias.defined() ? MaybeTensor(bias) : std::nullopt, scale);
  return {of_query, of_key, of_value, Tensor()};
}

// ---- recurrent cells

Tensor Plus(const Tensor& gates, const MaybeTensor& bias) {
  return bias && bias->defined() ? gates + *bias : gates;
}
Tensor OrZeros(const MaybeTensor& grad, const Tensor& like) {
  return grad && grad->defined() ? *grad : at::zeros_like(like);
}

std::tuple<Tensor, Tensor, Tensor> LstmCell(const Tensor& input_gates, const Tensor& hidden_gates,
                                            const Tensor& cx, const MaybeTensor& input_bias,
                                            const MaybeTensor& hidden_bias) {
  const auto gates =
      Plus(Plus(input_gates + hidden_gates, input_bias), hidden_bias).unsafe_chunk(4, 1);
  const Tensor in = gates[0].sigmoid(), forget = gates[1].sigmoid(), cell = gates[2].tanh(),
               out = gates[3].sigmoid();
  const Tensor cy = forget * cx + in * cell;
  return {out * cy.tanh(), cy, at::cat({in, forget, cell, out}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> LstmCellBackward(const MaybeTensor& grad_hy,
                                                    const MaybeTensor& grad_cy, const Tensor& cx,
                                                    const Tensor& cy, const Tensor& workspace,
                                                    bool has_bias) {
  const auto gates = workspace.unsafe_chunk(4, 1);
  const Tensor &in = gates[0], &forget = gates[1], &cell = gates[2], &out = gates[3];
  const Tensor of_hy = OrZeros(grad_hy, cy), shown = cy.tanh();
  const Tensor of_cy = OrZeros(grad_cy, cy) + of_hy * out * (1 - shown * shown);
  const Tensor of_gates = at::cat({of_cy * cell * in * (1 - in), of_cy * cx * forget * (1 - forget),
                                   of_cy * in * (1 - cell * cell), of_hy * shown * out * (1 - out)},
                                  1);
  return {of_gates, of_cy * forget, has_bias ? of_gates.sum(0) : Tensor()};
}

std::tuple<Tensor, Tensor> GruCell(const Tensor& input_gates, const Tensor& hidden_gates,
                                   const Tensor& hx, const MaybeTensor& input_bias,
                                   const MaybeTensor& hidden_bias) {
  const auto of_input = Plus(input_gates, input_bias).unsafe_chunk(3, 1);
  const auto of_hidden = Plus(hidden_gates, hidden_bias).unsafe_chunk(3, 1);
  const Tensor reset = (of_input[0] + of_hidden[0]).sigmoid(),
               update = (of_input[1] + of_hidden[1]).sigmoid(),
               fresh = (of_input[2] + reset * of_hidden[2]).tanh();
  return {(hx - fresh) * update + fresh, at::cat({reset, update, fresh, hx, of_hidden[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> GruCellBackward(const Tensor& grad,
                                                                   const Tensor& workspace,
                                                                   bool has_bias) {
  const auto saved = workspace.unsafe_chunk(5, 1);
  const Tensor &reset = saved[0], &update = saved[1], &fresh = saved[2], &hx = saved[3];
  const Tensor of_fresh = grad * (1 - update) * (1 - fresh * fresh);
  const Tensor of_reset = of_fresh * saved[4] * reset * (1 - reset);
  const Tensor of_update = grad * (hx - fresh) * update * (1 - update);
  const Tensor of_input = at::cat({of_reset, of_update, of_fresh}, 1);
  const Tensor of_hidden = at::cat({of_reset, of_update, of_fresh * reset}, 1);
  return {of_input, of_hidden, grad * update, has_bias ? of_input.sum(0) : Tensor(),
          has_bias ? of_hidden.sum(0) : Tensor()};
}

// torch comes here for the cuDNN version of a whole recurrent layer: once more, without cuDNN.
class WithoutCudnn {
 public:
  WithoutCudnn() { at::globalContext().setUserEnabledCuDNN(false); }
  ~WithoutCudnn() { at::globalContext().setUserEnabledCuDNN(true); }
  WithoutCudnn(const WithoutCudnn&) = delete;
  WithoutCudnn& operator=(const WithoutCudnn&) = delete;
};

void Lstm(Tensor& output, Tensor& hy, Tensor& cy, const Tensor& input, at::TensorList hx,
          at::TensorList params, bool has_biases, int64_t layers, double dropout, bool train,
          bool both_ways, bool batch_first) {
  const WithoutCudnn guard;
  std::tie(output, hy, cy) =
      at::lstm(input, hx, params, has_biases, layers, dropout, train, both_ways, batch_first);
}

void PackedLstm(Tensor& output, Tensor& hy, Tensor& cy, const Tensor& input,
                const Tensor& batch_sizes, at::TensorList hx, at::TensorList params,
                bool has_biases, int64_t layers, double dropout, bool train, bool both_ways) {
  const WithoutCudnn guard;
  std::tie(output, hy, cy) =
      at::lstm(input, batch_sizes, hx, params, has_biases, layers, dropout, train, both_ways);
}

using Layer = std::tuple<Tensor, Tensor> (*)(const Tensor&, const Tensor&, at::TensorList, bool,
                                             int64_t, double, bool, bool, bool);
template <Layer kLayer>
void Recurrent(Tensor& output, Tensor& hy, const Tensor& input, const Tensor& hx,
               at::TensorList params, bool has_biases, int64_t layers, double dropout, bool train,
               bool both_ways, bool batch_first) {
  const WithoutCudnn guard;
  std::tie(output, hy) =
      kLayer(input, hx, params, has_biases, layers, dropout, train, both_ways, batch_first);
}

using PackedLayer = std::tuple<Tensor, Tensor> (*)(const Tensor&, const Tensor&, const Tensor&,
                                                   at::TensorList, bool, int64_t, double, bool,
                                                   bool);
template <PackedLayer kLayer>
void PackedRecurrent(Tensor& output, Tensor& hy, const Tensor& input, const Tensor& batch_sizes,
                     const Tensor& hx, at::TensorList params, bool has_biases, int64_t layers,
                     double dropout, bool train, bool both_ways) {
  const WithoutCudnn guard;
  std::tie(output, hy) =
      kLayer(input, batch_sizes, hx, params, has_biases, layers, dropout, train, both_ways);
}

// ---- the rest

Tensor GridSampler(const Tensor& self, const Tensor& grid) {
  return at::grid_sampler_2d(self, grid, 0, 0, /*align_corners=*/true);
}
std::tuple<Tensor, Tensor> GridSamplerBackward(const Tensor& self, const Tensor& grid,
                                               const Tensor& grad) {
  return at::grid_sampler_2d_backward(grad, self, grid, 0, 0, /*align_corners=*/true, {true, true});
}

bool NoListedCtcLoss(const Tensor&, const Tensor&, at::IntArrayRef, at::IntArrayRef, int64_t) {
  return false;
}
bool NoCtcLoss(const Tensor&, const Tensor&, const Tensor&, const Tensor&, int64_t) {
  return false;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, CPU, library) {
  library.impl("cudnn_convolution", &CudnnConvolution);
  library.impl("cudnn_convolution_transpose", &CudnnConvolutionTranspose);
  library.impl("_conv_depthwise2d", &DepthwiseConvolution);
  library.impl("conv_depthwise3d", &DepthwiseConvolution);
  library.impl("cudnn_batch_norm", &CudnnBatchNorm);
  library.impl("cudnn_batch_norm_backward", &CudnnBatchNormBackward);
  library.impl("_fused_rms_norm_backward", &RmsNormBackward);
  library.impl("_scaled_dot_product_efficient_attention", &EfficientAttention);
  library.impl("_scaled_dot_product_efficient_attention_backward", &EfficientAttentionBackward);
  library.impl("_thnn_fused_lstm_cell", &LstmCell);
  library.impl("_thnn_fused_lstm_cell_backward_impl", &LstmCellBackward);
  library.impl("_thnn_fused_gru_cell", &GruCell);
  library.impl("_thnn_fused_gru_cell_backward", &GruCellBackward);
  library.impl("cudnn_grid_sampler", &GridSampler);
  library.impl("cudnn_grid_sampler_backward", &GridSamplerBackward);
  for (const std::string maker : {"cudnn", "miopen"}) {
    library.impl(("_use_" + maker + "_ctc_loss").c_str(), &NoListedCtcLoss);
    library.impl(("_use_" + maker + "_ctc_loss.Tensor").c_str(), &NoCtcLoss);
  }
  library.impl("record_stream", [](Tensor&, c10::Stream) {});
}

void ChooseKnownKernels() {
  using namespace at::native;
  _fused_sdp_choice_stub.set_cuda_dispatch_ptr(&ChooseAttention);
  lstm_cudnn_stub.set_cuda_dispatch_ptr(&Lstm);
  lstm_packed_cudnn_stub.set_cuda_dispatch_ptr(&PackedLstm);
  gru_cudnn_stub.set_cuda_dispatch_ptr(&Recurrent<&at::gru>);
  rnn_tanh_cudnn_stub.set_cuda_dispatch_ptr(&Recurrent<&at::rnn_tanh>);
  rnn_relu_cudnn_stub.set_cuda_dispatch_ptr(&Recurrent<&at::rnn_relu>);
  gru_packed_cudnn_stub.set_cuda_dispatch_ptr(&PackedRecurrent<&at::gru>);
  rnn_tanh_packed_cudnn_stub.set_cuda_dispatch_ptr(&PackedRecurrent<&at::rnn_tanh>);
  rnn_relu_packed_cudnn_stub.set_cuda_dispatch_ptr(&PackedRecurrent<&at::rnn_relu>);
}

}  // namespace nanwatch::fake
