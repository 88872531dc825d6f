#include "train/config/aliases.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "base/text_stream.h"
#include "train/config/nearest.h"

namespace trireme {
namespace {

struct AliasGroup {
  std::string_view key, note, names;  // names are separated by blanks
};

constexpr auto kAliasGroups = std::to_array<AliasGroup>({
    {"train.lr", "", "learning_rate max_lr peak_lr base_lr lr_max max_learning_rate adam_lr peak_learning_rate"},
    {"train.min_lr", "",
     "min_learning_rate lr_min final_lr lr_end end_lr learning_rate_decay_frac min_lr_ratio min_lr_factor "
     "min_lr_rate final_lr_fraction cosine_min_lr_ratio final_learning_rate"},
    {"train.warmup", "", "warmup_steps warmup_iters num_warmup_steps lr_warmup_iters lr_warmup_steps warmup_iterations"},
    {"train.warmup", "in steps", "lr_warmup_samples warmup_ratio lr_warmup_fraction warmup_tokens"},
    {"train.schedule", "",
     "lr_scheduler_type lr_scheduler lr_decay_style scheduler decay_type lr_schedule decay_lr "
     "learning_rate_schedule scheduler_type"},
    {"train.cooldown", "",
     "decay_ratio lr_wsd_decay_iters cooldown_frac cooldown_ratio decay_fraction warmdown_iters "
     "warmdown_ratio"},
    {"train.steps", "",
     "max_steps max_iters train_iters training_steps train_steps num_steps n_steps total_steps iterations "
     "num_iterations max_iterations max_train_steps num_training_steps lr_decay_iters"},
    {"train.steps", "in steps", "num_train_epochs epochs num_epochs max_epochs train_samples train_tokens max_tokens"},
    {"train.batch", "", "batch_size global_batch_size train_batch_size effective_batch_size global_batch bsz"},
    {"train.batch", "in sequences", "total_batch_size batch_tokens"},
    {"train.microbatch", "",
     "micro_batch_size micro_batch per_device_train_batch_size per_device_batch_size "
     "per_gpu_train_batch_size local_batch_size device_batch_size train_micro_batch_size_per_gpu"},
    {"train.microbatch", "train.batch / parallel.dp / train.microbatch passes are accumulated",
     "gradient_accumulation_steps gradient_accumulation grad_accum_steps grad_accumulation_steps "
     "accumulate_grad_batches num_microbatches"},
    {"train.decay", "", "weight_decay adam_weight_decay wd"},
    {"train.beta1", "", "adam_beta1 beta_1"},
    {"train.beta1", "and train.beta2", "betas adam_betas"},
    {"train.beta2", "", "adam_beta2 beta_2"},
    {"train.eps", "", "adam_epsilon adam_eps epsilon optimizer_eps"},
    {"train.clip", "",
     "grad_clip clip_grad max_grad_norm gradient_clip_val gradient_clipping gradient_clip max_norm "
     "clip_grad_norm grad_norm_clip"},
    {"train.seed", "", "random_seed manual_seed rng_seed data_seed"},
    {"train.eval_every", "",
     "eval_interval eval_steps eval_freq eval_frequency val_loss_every val_check_interval validation_freq "
     "evaluation_strategy eval_strategy evals_per_epoch"},
    {"train.eval_sequences", "", "eval_iters max_eval_samples val_max_steps eval_batches limit_val_batches"},
    {"train.eval_sequences", "in sequences", "eval_tokens val_tokens"},
    {"train.log_every", "", "logging_steps log_interval log_freq log_frequency log_every_n_steps logging_interval print_freq"},
    {"train.name", "", "run_name experiment_name exp_name job_name wandb_run_name wandb_name"},
    {"train.runs", "",
     "output_dir out_dir save_dir output_log_dir checkpoint_dir dump_folder log_dir logging_dir "
     "tensorboard_dir"},
    {"train.init_from", "",
     "model_name_or_path pretrained_model_name_or_path base_model pretrained finetune_from "
     "initial_load_path model_path pretrained_checkpoint"},
    {"train.recompute", "",
     "gradient_checkpointing activation_checkpointing activation_checkpoint recompute_activations "
     "recompute_granularity activation_checkpoint_mode use_gradient_checkpointing selective_ac_option"},
    {"train.offload", "", "cpu_offload offload_optimizer optimizer_cpu_offload enable_cpu_offload optimizer_offload"},
    {"train.rounding", "", "stochastic_rounding"},
    {"train.on_bad_step", "", "skip_nan_updates check_for_nan_in_loss check_for_nan_in_loss_and_grad"},
    {"train.spike_sigmas", "", "outlier_sigmas loss_spike_threshold rerun_mode"},
    {"train.hang_after", "in seconds", "distributed_timeout_minutes ddp_timeout train_timeout_seconds nccl_timeout"},
    {"checkpoint.every", "",
     "save_steps save_interval save_every save_freq checkpoint_interval checkpoint_every "
     "checkpoint_frequency ckpt_interval every_n_train_steps save_strategy saves_per_epoch "
     "always_save_checkpoint"},
    {"checkpoint.keep", "",
     "save_total_limit keep_latest_k keep_last keep_last_n max_checkpoints save_top_k "
     "keep_last_n_checkpoints"},
    {"checkpoint.async", "", "async_save async_mode async_checkpoint async_checkpointing"},
    {"kernels.dtype", "",
     "precision mixed_precision mixed_precision_param bf16 fp16 torch_dtype param_dtype params_dtype "
     "model_dtype compute_dtype amp autocast float16 bfloat16"},
    {"kernels.matmul", "", "fp8 fp8_format fp8_recipe float8 enable_fp8 enable_float8_linear"},
    {"kernels.bf16_layers", "", "first_last_layers_bf16 num_layers_at_start_in_bf16 num_layers_at_end_in_bf16"},
    {"kernels.device", "", "accelerator use_cuda device_type"},
    {"kernels.threads", "", "num_threads omp_num_threads n_threads"},
    {"kernels.attention", "",
     "attn_implementation flash_attention use_flash_attn use_flash_attention flash_attn attention_backend "
     "sdp_attention"},
    {"kernels.graph", "", "cuda_graph use_cuda_graph enable_cuda_graph cuda_graphs"},
    {"model.family", "",
     "model_type arch architecture architectures model_family activation_function hidden_act normalization "
     "position_embedding_type swiglu"},
    {"model.layers", "", "n_layer n_layers num_layers num_hidden_layers depth num_blocks n_blocks num_transformer_layers"},
    {"model.width", "",
     "n_embd n_embed hidden_size d_model dim hidden_dim embed_dim embedding_size embedding_dim emb_dim "
     "model_dim channels"},
    {"model.heads", "", "n_head n_heads num_heads num_attention_heads attention_heads"},
    {"model.kv_heads", "", "n_kv_head n_kv_heads num_kv_heads num_key_value_heads num_query_groups"},
    {"model.head_size", "", "head_dim kv_channels d_head head_width"},
    {"model.ffn", "",
     "intermediate_size ffn_hidden_size ffn_dim ffn_size n_inner d_ff mlp_dim mlp_hidden_size mlp_size "
     "feed_forward_dim"},
    {"model.ffn", "the hidden size itself", "mlp_ratio ffn_dim_multiplier multiple_of"},
    {"model.vocab", "", "vocab_size n_vocab padded_vocab_size vocabulary_size make_vocab_size_divisible_by"},
    {"model.context", "",
     "block_size seq_length seq_len max_seq_len max_seq_length sequence_len sequence_length "
     "max_sequence_length max_position_embeddings context_length context_size ctx_len n_positions n_ctx "
     "cutoff_len max_length model_max_length"},
    {"model.tied", "", "tie_word_embeddings tie_embeddings tied_embeddings weight_tying enable_weight_tying share_embeddings"},
    {"model.tied", "with the opposite meaning", "untie_embeddings_and_output_weights"},
    {"model.theta", "", "rope_theta rotary_base rope_base rotary_emb_base"},
    {"model.rope_scaling", "", "rope_type use_rope_scaling"},
    {"model.rope_factor", "", "rope_scaling_factor scaling_factor"},
    {"model.qk_norm", "", "qk_layernorm use_qk_norm"},
    {"model.qkv_bias", "", "bias attention_bias add_qkv_bias add_bias_linear use_bias"},
    {"model.window", "", "sliding_window window_size sliding_window_size attention_window"},
    {"model.norm_eps", "", "layer_norm_epsilon layer_norm_eps rms_norm_eps norm_epsilon"},
    {"model.init_std", "", "initializer_range init_method_std"},
    {"model.z_loss", "", "z_loss_weight zloss z_loss_coeff"},
    {"model.document_mask", "", "reset_attention_mask sample_packing neat_packing intra_document_masking"},
    {"model.restart_positions", "", "reset_position_ids"},
    {"data.train", "",
     "train_data data_path train_data_path dataset datasets dataset_path dataset_name dataset_dir "
     "train_file train_files train_dataset train_bin input_bin data_dir"},
    {"data.validation", "",
     "valid_data_path val_data val_file val_files validation_file validation_data eval_dataset val_dataset "
     "eval_data val_bin input_val_bin test_datasets"},
    {"data.validation", "shards that data build held out", "val_set_size"},
    {"data.weights", "", "data_weights mixture_weights interleave_probs sampling_weights mixing_probs"},
    {"data.tokenizer", "",
     "tokenizer_path tokenizer_model tokenizer_name tokenizer_name_or_path tokenizer_file tokenizer_config "
     "vocab_file hf_assets_path"},
    {"parallel.dp", "", "data_parallel_size dp_size"},
    {"parallel.pp", "", "pipeline_parallel_degree pipeline_parallel_size pipeline_model_parallel_size pp_size pp_degree"},
    {"parallel.tp", "",
     "tensor_parallel_degree tensor_parallel_size tensor_model_parallel_size tp_size tp_degree "
     "model_parallel_size"},
    {"parallel.cp", "", "context_parallel_degree context_parallel_size cp_size"},
    {"parallel.ep", "", "expert_parallel_degree expert_parallel_size expert_model_parallel_size ep_size"},
    {"parallel.zero", "",
     "zero_stage zero_optimization zero_optimization_stage fsdp fsdp_config fsdp_sharding_strategy "
     "sharding_strategy deepspeed use_distributed_optimizer"},
    {"parallel.shard", "", "data_parallel_shard_degree mics_shard_size"},
    {"parallel.shard", "replicas divided by so many copies of the state",
     "data_parallel_replicate_degree num_distributed_optimizer_instances"},
    {"parallel.schedule", "", "pipeline_parallel_schedule pipeline_schedule pp_schedule"},
    {"parallel.chunks", "", "virtual_pipeline_model_parallel_size num_layers_per_virtual_pipeline_stage num_virtual_stages"},
    {"parallel.tp_overlap", "", "tp_comm_overlap async_tensor_parallel enable_async_tensor_parallel"},
    {"parallel.sequence", "", "sequence_parallel enable_sequence_parallel"},
    {"parallel.reduce", "",
     "reduce_dtype grad_reduce_dtype mixed_precision_reduce accumulate_allreduce_grads_in_fp32 "
     "grad_reduce_in_fp32"},
    {"parallel.reduce_when", "", "no_sync"},
    {"parallel.compress", "", "ddp_comm_hook comm_hook gradient_compression compression"},
    {"parallel.compress_rank", "", "matrix_approximation_rank powersgd_rank"},
    {"parallel.local_steps", "", "sync_every local_updates_steps inner_steps diloco"},
    {"parallel.outer_lr", "", "outer_learning_rate"},
    {"parallel.apart_after", "", "start_powersgd_iter start_localsgd_iter"},
    {"", "dropout is not supported", "dropout attn_pdrop resid_pdrop embd_pdrop hidden_dropout attention_dropout residual_dropout"},
    {"", "LoRA is not supported", "lora_r lora_rank lora_alpha lora_dropout lora_target lora_target_modules adapter peft_type"},
    {"", "mixture of experts is not supported", "num_experts num_local_experts n_experts num_experts_per_tok moe_router_topk"},
    {"", "the optimizer is always AdamW", "optim optimizer optimizer_type optimizer_name muon"},
    {"report.tensorboard", "", "enable_tensorboard use_tensorboard log_to_tensorboard tensorboard_logging"},
    {"report.metrics_port", "", "prometheus_port metrics_server_port monitoring_port"},
    {"", "scripts/wandb_push.py sends a run to Weights & Biases; report.tensorboard writes event files",
     "wandb wandb_project wandb_log wandb_entity report_to enable_wandb use_wandb"},
    {"", "nothing needs to be compiled", "compile torch_compile use_compile"},
    {"", "loading needs no workers", "num_workers dataloader_num_workers preprocessing_num_workers"},
    {"", "continuing is automatic; see trireme train --resume",
     "resume resume_from_checkpoint auto_resume_from_checkpoints resume_from load_checkpoint"},
    {"", "ranks are started by mpirun or srun", "world_size num_gpus n_gpus nproc_per_node num_nodes nnodes devices"},
    {"", "averaged weights are not supported", "ema ema_decay use_ema"},
    {"", "chat templates belong to trireme data build --messages-field", "chat_template"},
    {"", "loss masks belong to trireme data build", "train_on_inputs mask_prompt"},
});

// Letters and digits in lower case.
std::string plain_name(std::string_view name) {
  std::string letters;
  for (const char c : name)
    if (c != '_' && c != '-') letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return letters;
}

}  // namespace

std::vector<Alias> all_aliases() {
  std::vector<Alias> all;
  for (const AliasGroup& group : kAliasGroups) {
    TextReader names{std::string(group.names)};
    for (std::string name; names >> name;)
      all.push_back({.name = name, .key = std::string(group.key), .note = std::string(group.note)});
  }
  return all;
}

std::optional<Alias> find_alias(const std::string& name) {
  const std::string wanted = plain_name(name);
  for (const Alias& alias : all_aliases())
    if (plain_name(alias.name) == wanted) return alias;
  return std::nullopt;
}

std::optional<Alias> nearest_alias(const std::string& name) {
  std::vector<std::string> names;
  for (const Alias& alias : all_aliases()) names.push_back(plain_name(alias.name));
  return find_alias(nearest(plain_name(name), names));
}

}  // namespace trireme
