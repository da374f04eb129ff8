# SPDX-License-Identifier: Apache-2.0
"""Trainings as people write them (programs/), each with one planted fault, and the one right answer to each."""
import pathlib

from watched_program import WatchedProgramTest, main

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
FORWARD = {"kind": "op", "class": "produce", "phase": "forward", "exact": True}
BACKWARD = {"kind": "op", "class": "produce", "phase": "backward", "exact": True}
UPDATE = {"kind": "optimizer", "class": "produce", "phase": "optimizer"}


class WholeTrainings(WatchedProgramTest):
    def program(self, name):
        return (PROGRAMS / f"{name}.py").read_text()

    def assert_origin(self, name, **origin):
        """It is the only incident that did harm, and it has figures."""
        incident = self.assert_anomaly(self.program(name), **origin)
        self.assertTrue(incident["origin"]["outputs"], incident["origin"])
        return incident

    def test_classifier_with_an_average_of_weights_a_warm_up_and_validation_before_the_first_step(self):
        self.assert_origin("classifier_with_average", op="aten::log", layer="head", step=6, **FORWARD)

    def test_training_resumed_with_second_moments_below_zero(self):
        self.assert_origin("resumed_with_negative_moments", op="aten::sqrt", param="enc.0.weight", step=5, **UPDATE)

    def test_contrastive_training_with_a_temperature_under_autocast_and_a_scaler(self):
        self.assert_origin("contrastive_under_autocast", op="aten::exp", layer="temp", step=7, **FORWARD)

    def test_critic_with_a_gradient_penalty_and_five_updates_for_one_of_the_generator(self):
        origin = self.assert_origin("critic_with_gradient_penalty", op="aten::div", autograd_node="SqrtBackward0", step=2, **BACKWARD)["origin"]
        self.assertEqual(int(origin["updates"]), 15)

    def test_variational_autoencoder(self):
        self.assert_origin("variational_autoencoder", op="aten::exp", layer="", root="VAE#0", step=9, **FORWARD)

    def test_speech_recognizer_with_a_target_longer_than_its_input(self):
        self.assert_origin("speech_recognizer", op="aten::_ctc_loss", step=5, **FORWARD)

    def test_actor_and_critic_with_advantages_of_one_step(self):
        self.assert_origin("actor_critic", op="aten::std", step=6, **FORWARD)

    def test_regression_of_boxes_one_of_which_has_no_width(self):
        self.assert_origin("box_regression", op="aten::log", step=3, **FORWARD)

    def test_normalizing_flow(self):
        self.assert_origin("normalizing_flow", op="aten::exp", layer="layers.1", step=6, **FORWARD)

    def test_line_search_whose_closure_keeps_its_losses(self):
        self.assert_origin("line_search", op="aten::log", layer="phys", step=2, **FORWARD)

    def test_averaged_weights_with_a_norm_of_zeros(self):
        self.assert_origin("weight_averaging", op="aten::rsqrt", layer="norm", step=8, **FORWARD)

    def test_function_with_a_backward_of_its_own(self):
        self.assert_origin("function_of_its_own", op="aten::div", layer="act", step=5, **BACKWARD)

    def test_row_of_a_table(self):
        self.assert_origin("row_of_a_table", op="aten::addmm", layer="0", step=2, kind="input_data", **{"class": "external"})

    def test_blocks_that_are_computed_again_in_the_backward(self):
        self.assert_origin("recomputed_blocks", op="aten::div", layer="blocks.1", step=4, **FORWARD)

    def test_sharpness_aware_updates_of_gradients_that_are_zero(self):
        self.assert_origin("sharpness_aware", op="aten::reciprocal", param="0.weight", step=4, **UPDATE)

    def test_validation_in_the_middle_of_accumulated_gradients(self):
        self.assert_origin("validation_while_accumulating", op="aten::exp", layer="gate", step=4, **FORWARD)

    def test_optimizer_of_its_own_that_divides_zero_by_zero(self):
        self.assert_origin("optimizer_of_its_own", op="aten::div", param="gate.weight", step=4, **UPDATE)

    def test_packed_sequences_one_of_which_is_empty(self):
        self.assert_origin("packed_sequences", op="aten::div", layer="", root="Cls#0", step=4, **FORWARD)

    def test_angular_margin_with_embeddings_that_are_zero(self):
        self.assert_origin("angular_margin", op="aten::div", root="Arc#0", step=4, **FORWARD)

    def test_last_batch_of_one_sample(self):
        self.assert_origin("last_batch_of_one", op="aten::var", layer="bn", step=4, **FORWARD)

    def test_mixture_of_densities(self):
        self.assert_origin("mixture_density", op="aten::log", layer="", step=6, **FORWARD)

    def test_graph_with_a_node_without_edges(self):
        self.assert_origin("graph_network", op="aten::pow", layer="c1", step=3, **FORWARD)

    def test_rewards_that_are_kept_for_steps(self):
        self.assert_origin("replayed_rewards", op="aten::log", step=3, kind="op", exact=False, **{"class": "produce"})

    def test_schedule_of_length_zero(self):
        self.assert_origin("schedule_of_length_zero", param="0.weight", step=3, kind="optimizer", phase="optimizer", **{"class": "scalar"})

    def test_loss_divided_by_the_average_of_those_before(self):
        self.assert_origin("loss_by_its_average", op="aten::log", step=6, kind="op", exact=False, **{"class": "produce"})


if __name__ == "__main__":
    main()
