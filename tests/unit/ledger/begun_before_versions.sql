-- studies.db as paretune wrote it before its tables had a version (commit da780ba): Optuna's tables, and the ledger's.
-- A study of a simulated table, interrupted by Ctrl-C once; then its driver was killed while two trials were running.
BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('v3.2.0.a');
CREATE TABLE paretune_drivers (
	study VARCHAR(255) NOT NULL, 
	owner VARCHAR(255) NOT NULL, 
	seen FLOAT NOT NULL, 
	PRIMARY KEY (study, owner)
);
INSERT INTO "paretune_drivers" VALUES('begun before','elsewhere 7660 1795215254',1000.0);
CREATE TABLE paretune_ledger (
	study VARCHAR(255) NOT NULL, 
	trial INTEGER NOT NULL, 
	identity VARCHAR(255) NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	worst_usd FLOAT, 
	booked_usd FLOAT, 
	spent_usd FLOAT, 
	place INTEGER, 
	counts INTEGER NOT NULL, 
	settled INTEGER NOT NULL, 
	owner VARCHAR(255) NOT NULL, 
	parameters TEXT NOT NULL, 
	note TEXT NOT NULL, 
	ended TEXT, 
	PRIMARY KEY (study, trial)
);
INSERT INTO "paretune_ledger" VALUES('begun before',0,'8fa54836adfc','6e4a17bc50a64431b037e709c8aec0a9',1.12856527777777770893e+00,4.18993555555555452496e-01,1.59615904569183952865e+00,3,1,1,'elsewhere 7649 1795215247','{"strategy": "ddp", "tensor_parallel_degree": "", "context_parallel_degree": "", "expert_parallel_degree": "", "hybrid_shard_degree": "", "activation_offloading": "false", "instance_type": "ml.g6.xlarge", "instance_count": "1", "processes_per_instance": "", "launcher": "simulated", "recorded_runs": "runs.csv", "simulation": "{\"capacity_error_rate\": 0.1, \"f1_noise\": 0.002, \"failure_rate\": 0.1}", "max_runtime_minutes": "60.0", "max_cost_usd": "", "local_price_usd_per_hour": "0.115", "spot": "false", "max_wait_minutes": "", "fallback_instance_types": "", "capacity_wait_minutes": "0.0", "region": "", "role": "", "bucket": "", "image_uri": "", "volume_gib": "", "keep_alive_minutes": "0.0", "subnets": "", "security_group_ids": "", "kms_key": "", "tags": "", "on_interrupt": "stop", "model": "embedded:all-MiniLM-L6-v2", "dataset": "embedded:rotten_tomatoes", "dataset_config_name": "", "validation_file": "", "test_file": "", "text_column": "text", "label_column": "label", "task": "classification", "max_train_samples": "", "max_eval_samples": "", "max_seq_length": "128", "per_device_train_batch_size": "16", "gradient_accumulation_steps": "", "global_batch_size": "", "learning_rate": "5e-05", "learning_rate_scaling": "none", "reference_batch_size": "16", "num_train_epochs": "2.0", "seed": "42", "precision": "auto", "fine_tuning": "full", "compiler": "none", "training_arguments": "", "entry_script": "", "probe_steps": "", "dry_run": "false"}','{"point": {"instance_type": "ml.g6.xlarge", "instance_count": 1, "per_device_train_batch_size": 16, "learning_rate": 5e-05}, "seed": 42, "repeats": null, "changes": {}, "kind": "trial", "predicted": {}}','{"status": "Completed", "metrics": {"train_seconds": 1218.3999999999996, "throughput_samples_per_second": 12.606697307944849, "f1": 0.8876974214240981, "job_seconds": 1338.3999999999996, "billable_seconds": 1338.3999999999996, "cost_usd": 0.41899355555555545}, "reason": "", "curve": [[0.5, 0.787697421424098], [1.0, 0.8876974214240981]], "again": false, "later": false, "expected": {}}');
INSERT INTO "paretune_ledger" VALUES('begun before',1,'dc153cd944f3','7c5bb4ff46714df6b2eec9e6acd99664',2.8199111111111103689e+00,6.04579555555555314683e-01,1.17716549013628402065e+00,2,1,1,'elsewhere 7649 1795215247','{"strategy": "ddp", "tensor_parallel_degree": "", "context_parallel_degree": "", "expert_parallel_degree": "", "hybrid_shard_degree": "", "activation_offloading": "false", "instance_type": "ml.g5.xlarge", "instance_count": "2", "processes_per_instance": "", "launcher": "simulated", "recorded_runs": "runs.csv", "simulation": "{\"capacity_error_rate\": 0.1, \"f1_noise\": 0.002, \"failure_rate\": 0.1}", "max_runtime_minutes": "60.0", "max_cost_usd": "", "local_price_usd_per_hour": "0.115", "spot": "false", "max_wait_minutes": "", "fallback_instance_types": "", "capacity_wait_minutes": "0.0", "region": "", "role": "", "bucket": "", "image_uri": "", "volume_gib": "", "keep_alive_minutes": "0.0", "subnets": "", "security_group_ids": "", "kms_key": "", "tags": "", "on_interrupt": "stop", "model": "embedded:all-MiniLM-L6-v2", "dataset": "embedded:rotten_tomatoes", "dataset_config_name": "", "validation_file": "", "test_file": "", "text_column": "text", "label_column": "label", "task": "classification", "max_train_samples": "", "max_eval_samples": "", "max_seq_length": "128", "per_device_train_batch_size": "16", "gradient_accumulation_steps": "", "global_batch_size": "", "learning_rate": "4.177670806041918e-05", "learning_rate_scaling": "none", "reference_batch_size": "16", "num_train_epochs": "2.0", "seed": "42", "precision": "auto", "fine_tuning": "full", "compiler": "none", "training_arguments": "", "entry_script": "", "probe_steps": "", "dry_run": "false"}','{"point": {"instance_type": "ml.g5.xlarge", "instance_count": 2, "per_device_train_batch_size": 16, "learning_rate": 4.177670806041918e-05}, "seed": 42, "repeats": null, "changes": {}, "kind": "trial", "predicted": {}}','{"status": "Completed", "metrics": {"train_seconds": 652.8999999999997, "throughput_samples_per_second": 23.525807933833676, "f1": 0.881363029420611, "job_seconds": 772.8999999999997, "billable_seconds": 772.8999999999997, "cost_usd": 0.6045795555555553}, "reason": "", "curve": [[0.5, 0.7813630294206111], [1.0, 0.881363029420611]], "again": false, "later": false, "expected": {}}');
INSERT INTO "paretune_ledger" VALUES('begun before',2,'1b650540aec1','bfb68a99ef5c4dc5b4dbb96a2e9317a5',2.8199111111111103689e+00,5.72585934580728594944e-01,5.72585934580728594944e-01,1,1,0,'elsewhere 7649 1795215247','{"strategy": "ddp", "tensor_parallel_degree": "", "context_parallel_degree": "", "expert_parallel_degree": "", "hybrid_shard_degree": "", "activation_offloading": "false", "instance_type": "ml.g5.xlarge", "instance_count": "2", "processes_per_instance": "", "launcher": "simulated", "recorded_runs": "runs.csv", "simulation": "{\"capacity_error_rate\": 0.1, \"f1_noise\": 0.002, \"failure_rate\": 0.1}", "max_runtime_minutes": "60.0", "max_cost_usd": "", "local_price_usd_per_hour": "0.115", "spot": "false", "max_wait_minutes": "", "fallback_instance_types": "", "capacity_wait_minutes": "0.0", "region": "", "role": "", "bucket": "", "image_uri": "", "volume_gib": "", "keep_alive_minutes": "0.0", "subnets": "", "security_group_ids": "", "kms_key": "", "tags": "", "on_interrupt": "stop", "model": "embedded:all-MiniLM-L6-v2", "dataset": "embedded:rotten_tomatoes", "dataset_config_name": "", "validation_file": "", "test_file": "", "text_column": "text", "label_column": "label", "task": "classification", "max_train_samples": "", "max_eval_samples": "", "max_seq_length": "128", "per_device_train_batch_size": "16", "gradient_accumulation_steps": "", "global_batch_size": "", "learning_rate": "2.4781993537739004e-05", "learning_rate_scaling": "none", "reference_batch_size": "16", "num_train_epochs": "2.0", "seed": "42", "precision": "auto", "fine_tuning": "full", "compiler": "none", "training_arguments": "", "entry_script": "", "probe_steps": "", "dry_run": "false"}','{"point": {"instance_type": "ml.g5.xlarge", "instance_count": 2, "per_device_train_batch_size": 16, "learning_rate": 2.4781993537739004e-05}, "seed": 42, "repeats": null, "changes": {}, "kind": "trial", "predicted": {}}','{"status": "Failed", "metrics": {}, "reason": "simulated, by failure_rate", "curve": [[0.5, 0.789902751819245]], "again": false, "later": false, "expected": {}}');
INSERT INTO "paretune_ledger" VALUES('begun before',3,'2e4b17fa21ed','bcd2254538504085a1e7bfbc6628b82f',1.40995555555555518445e+00,0.242410666648017,1.8385697123398563324e+00,4,0,0,'elsewhere 7649 1795215247','{"strategy": "ddp", "tensor_parallel_degree": "", "context_parallel_degree": "", "expert_parallel_degree": "", "hybrid_shard_degree": "", "activation_offloading": "false", "instance_type": "ml.g5.xlarge", "instance_count": "1", "processes_per_instance": "", "launcher": "simulated", "recorded_runs": "runs.csv", "simulation": "{\"capacity_error_rate\": 0.1, \"f1_noise\": 0.002, \"failure_rate\": 0.1}", "max_runtime_minutes": "60.0", "max_cost_usd": "", "local_price_usd_per_hour": "0.115", "spot": "false", "max_wait_minutes": "", "fallback_instance_types": "", "capacity_wait_minutes": "0.0", "region": "", "role": "", "bucket": "", "image_uri": "", "volume_gib": "", "keep_alive_minutes": "0.0", "subnets": "", "security_group_ids": "", "kms_key": "", "tags": "", "on_interrupt": "stop", "model": "embedded:all-MiniLM-L6-v2", "dataset": "embedded:rotten_tomatoes", "dataset_config_name": "", "validation_file": "", "test_file": "", "text_column": "text", "label_column": "label", "task": "classification", "max_train_samples": "", "max_eval_samples": "", "max_seq_length": "128", "per_device_train_batch_size": "32", "gradient_accumulation_steps": "", "global_batch_size": "", "learning_rate": "1.872578556211959e-05", "learning_rate_scaling": "none", "reference_batch_size": "16", "num_train_epochs": "2.0", "seed": "42", "precision": "auto", "fine_tuning": "full", "compiler": "none", "training_arguments": "", "entry_script": "", "probe_steps": "", "dry_run": "false"}','{"point": {"instance_type": "ml.g5.xlarge", "instance_count": 1, "per_device_train_batch_size": 32, "learning_rate": 1.872578556211959e-05}, "seed": 42, "repeats": null, "changes": {}, "kind": "trial", "predicted": {}}','{"status": "Stopped", "metrics": {}, "reason": "interrupted by SIGINT", "curve": [[0.5, 0.7846140379473495]], "again": true, "later": false, "expected": {}}');
INSERT INTO "paretune_ledger" VALUES('begun before',4,'26a8b8703a8e','3e7aa75e977c4ca7a2789f39a6d88a7d',2.25713055555555541786e+00,0.312930333303478,2.15150004564333441336e+00,5,0,0,'elsewhere 7649 1795215247','{"strategy": "ddp", "tensor_parallel_degree": "", "context_parallel_degree": "", "expert_parallel_degree": "", "hybrid_shard_degree": "", "activation_offloading": "false", "instance_type": "ml.g6.xlarge", "instance_count": "2", "processes_per_instance": "", "launcher": "simulated", "recorded_runs": "runs.csv", "simulation": "{\"capacity_error_rate\": 0.1, \"f1_noise\": 0.002, \"failure_rate\": 0.1}", "max_runtime_minutes": "60.0", "max_cost_usd": "", "local_price_usd_per_hour": "0.115", "spot": "false", "max_wait_minutes": "", "fallback_instance_types": "", "capacity_wait_minutes": "0.0", "region": "", "role": "", "bucket": "", "image_uri": "", "volume_gib": "", "keep_alive_minutes": "0.0", "subnets": "", "security_group_ids": "", "kms_key": "", "tags": "", "on_interrupt": "stop", "model": "embedded:all-MiniLM-L6-v2", "dataset": "embedded:rotten_tomatoes", "dataset_config_name": "", "validation_file": "", "test_file": "", "text_column": "text", "label_column": "label", "task": "classification", "max_train_samples": "", "max_eval_samples": "", "max_seq_length": "128", "per_device_train_batch_size": "64", "gradient_accumulation_steps": "", "global_batch_size": "", "learning_rate": "1.3111308221484775e-05", "learning_rate_scaling": "none", "reference_batch_size": "16", "num_train_epochs": "2.0", "seed": "42", "precision": "auto", "fine_tuning": "full", "compiler": "none", "training_arguments": "", "entry_script": "", "probe_steps": "", "dry_run": "false"}','{"point": {"instance_type": "ml.g6.xlarge", "instance_count": 2, "per_device_train_batch_size": 64, "learning_rate": 1.3111308221484775e-05}, "seed": 42, "repeats": null, "changes": {}, "kind": "trial", "predicted": {}}','{"status": "Stopped", "metrics": {}, "reason": "interrupted by SIGINT", "curve": [], "again": true, "later": false, "expected": {}}');
INSERT INTO "paretune_ledger" VALUES('begun before',5,'304250e3693d','f270fa2c32ab4a9c9b6c7a917010724b',2.8199111111111103689e+00,3.91111111111111086485e-03,2.15541115675444538979e+00,6,0,0,'elsewhere 7649 1795215247','{"strategy": "ddp", "tensor_parallel_degree": "", "context_parallel_degree": "", "expert_parallel_degree": "", "hybrid_shard_degree": "", "activation_offloading": "false", "instance_type": "ml.g5.xlarge", "instance_count": "2", "processes_per_instance": "", "launcher": "simulated", "recorded_runs": "runs.csv", "simulation": "{\"capacity_error_rate\": 0.1, \"f1_noise\": 0.002, \"failure_rate\": 0.1}", "max_runtime_minutes": "60.0", "max_cost_usd": "", "local_price_usd_per_hour": "0.115", "spot": "false", "max_wait_minutes": "", "fallback_instance_types": "", "capacity_wait_minutes": "0.0", "region": "", "role": "", "bucket": "", "image_uri": "", "volume_gib": "", "keep_alive_minutes": "0.0", "subnets": "", "security_group_ids": "", "kms_key": "", "tags": "", "on_interrupt": "stop", "model": "embedded:all-MiniLM-L6-v2", "dataset": "embedded:rotten_tomatoes", "dataset_config_name": "", "validation_file": "", "test_file": "", "text_column": "text", "label_column": "label", "task": "classification", "max_train_samples": "", "max_eval_samples": "", "max_seq_length": "128", "per_device_train_batch_size": "8", "gradient_accumulation_steps": "", "global_batch_size": "", "learning_rate": "1.5410995617781415e-05", "learning_rate_scaling": "none", "reference_batch_size": "16", "num_train_epochs": "2.0", "seed": "42", "precision": "auto", "fine_tuning": "full", "compiler": "none", "training_arguments": "", "entry_script": "", "probe_steps": "", "dry_run": "false"}','{"point": {"instance_type": "ml.g5.xlarge", "instance_count": 2, "per_device_train_batch_size": 8, "learning_rate": 1.5410995617781415e-05}, "seed": 42, "repeats": null, "changes": {}, "kind": "trial", "predicted": {}}','{"status": "Stopped", "metrics": {}, "reason": "interrupted by SIGINT", "curve": [], "again": true, "later": false, "expected": {}}');
INSERT INTO "paretune_ledger" VALUES('begun before',6,'2e4b17fa21ed','af5053bd235849e6910ea4b3bfa1638e',1.40995555555555518445e+00,4.33976888851589581719e-01,3.65686693442776933338e+00,9,1,1,'elsewhere 7660 1795215254','{"strategy": "ddp", "tensor_parallel_degree": "", "context_parallel_degree": "", "expert_parallel_degree": "", "hybrid_shard_degree": "", "activation_offloading": "false", "instance_type": "ml.g5.xlarge", "instance_count": "1", "processes_per_instance": "", "launcher": "simulated", "recorded_runs": "runs.csv", "simulation": "{\"capacity_error_rate\": 0.1, \"f1_noise\": 0.002, \"failure_rate\": 0.1}", "max_runtime_minutes": "60.0", "max_cost_usd": "", "local_price_usd_per_hour": "0.115", "spot": "false", "max_wait_minutes": "", "fallback_instance_types": "", "capacity_wait_minutes": "0.0", "region": "", "role": "", "bucket": "", "image_uri": "", "volume_gib": "", "keep_alive_minutes": "0.0", "subnets": "", "security_group_ids": "", "kms_key": "", "tags": "", "on_interrupt": "stop", "model": "embedded:all-MiniLM-L6-v2", "dataset": "embedded:rotten_tomatoes", "dataset_config_name": "", "validation_file": "", "test_file": "", "text_column": "text", "label_column": "label", "task": "classification", "max_train_samples": "", "max_eval_samples": "", "max_seq_length": "128", "per_device_train_batch_size": "32", "gradient_accumulation_steps": "", "global_batch_size": "", "learning_rate": "1.872578556211959e-05", "learning_rate_scaling": "none", "reference_batch_size": "16", "num_train_epochs": "2.0", "seed": "42", "precision": "auto", "fine_tuning": "full", "compiler": "none", "training_arguments": "", "entry_script": "", "probe_steps": "", "dry_run": "false"}','{"point": {"instance_type": "ml.g5.xlarge", "instance_count": 1, "per_device_train_batch_size": 32, "learning_rate": 1.872578556211959e-05}, "seed": 42, "repeats": null, "changes": {}, "kind": "trial", "predicted": {}}','{"status": "Completed", "metrics": {"train_seconds": 989.5999999999997, "throughput_samples_per_second": 15.521422797089738, "f1": 0.8846140379473494, "job_seconds": 1109.5999999046326, "billable_seconds": 1109.5999999046326, "cost_usd": 0.4339768888515896}, "reason": "", "curve": [[0.5, 0.7846140379473495], [1.0, 0.8846140379473494]], "again": false, "later": false, "expected": {}}');
INSERT INTO "paretune_ledger" VALUES('begun before',7,'26a8b8703a8e','cbf8737c7b894e4aaf90f6f94f940ddf',2.25713055555555541786e+00,3.44861999970144661453e-01,2.50027315672459060635e+00,7,1,1,'elsewhere 7660 1795215254','{"strategy": "ddp", "tensor_parallel_degree": "", "context_parallel_degree": "", "expert_parallel_degree": "", "hybrid_shard_degree": "", "activation_offloading": "false", "instance_type": "ml.g6.xlarge", "instance_count": "2", "processes_per_instance": "", "launcher": "simulated", "recorded_runs": "runs.csv", "simulation": "{\"capacity_error_rate\": 0.1, \"f1_noise\": 0.002, \"failure_rate\": 0.1}", "max_runtime_minutes": "60.0", "max_cost_usd": "", "local_price_usd_per_hour": "0.115", "spot": "false", "max_wait_minutes": "", "fallback_instance_types": "", "capacity_wait_minutes": "0.0", "region": "", "role": "", "bucket": "", "image_uri": "", "volume_gib": "", "keep_alive_minutes": "0.0", "subnets": "", "security_group_ids": "", "kms_key": "", "tags": "", "on_interrupt": "stop", "model": "embedded:all-MiniLM-L6-v2", "dataset": "embedded:rotten_tomatoes", "dataset_config_name": "", "validation_file": "", "test_file": "", "text_column": "text", "label_column": "label", "task": "classification", "max_train_samples": "", "max_eval_samples": "", "max_seq_length": "128", "per_device_train_batch_size": "64", "gradient_accumulation_steps": "", "global_batch_size": "", "learning_rate": "1.3111308221484775e-05", "learning_rate_scaling": "none", "reference_batch_size": "16", "num_train_epochs": "2.0", "seed": "42", "precision": "auto", "fine_tuning": "full", "compiler": "none", "training_arguments": "", "entry_script": "", "probe_steps": "", "dry_run": "false"}','{"point": {"instance_type": "ml.g6.xlarge", "instance_count": 2, "per_device_train_batch_size": 64, "learning_rate": 1.3111308221484775e-05}, "seed": 42, "repeats": null, "changes": {}, "kind": "trial", "predicted": {}}','{"status": "OutOfMemory", "metrics": {}, "reason": "out of memory, with the smallest per-device batch that could be tried: lower max_seq_length, set fine_tuning to lora or head, or use a larger instance (the recorded run in line 78 and its neighbours ran out of memory)", "curve": [], "again": false, "later": false, "expected": {}}');
INSERT INTO "paretune_ledger" VALUES('begun before',8,'304250e3693d','ae4bd708b5c74fddb5b68504fd9e3536',2.8199111111111103689e+00,7.22616888851589589393e-01,3.22289004557617975166e+00,8,1,1,'elsewhere 7660 1795215254','{"strategy": "ddp", "tensor_parallel_degree": "", "context_parallel_degree": "", "expert_parallel_degree": "", "hybrid_shard_degree": "", "activation_offloading": "false", "instance_type": "ml.g5.xlarge", "instance_count": "2", "processes_per_instance": "", "launcher": "simulated", "recorded_runs": "runs.csv", "simulation": "{\"capacity_error_rate\": 0.1, \"f1_noise\": 0.002, \"failure_rate\": 0.1}", "max_runtime_minutes": "60.0", "max_cost_usd": "", "local_price_usd_per_hour": "0.115", "spot": "false", "max_wait_minutes": "", "fallback_instance_types": "", "capacity_wait_minutes": "0.0", "region": "", "role": "", "bucket": "", "image_uri": "", "volume_gib": "", "keep_alive_minutes": "0.0", "subnets": "", "security_group_ids": "", "kms_key": "", "tags": "", "on_interrupt": "stop", "model": "embedded:all-MiniLM-L6-v2", "dataset": "embedded:rotten_tomatoes", "dataset_config_name": "", "validation_file": "", "test_file": "", "text_column": "text", "label_column": "label", "task": "classification", "max_train_samples": "", "max_eval_samples": "", "max_seq_length": "128", "per_device_train_batch_size": "8", "gradient_accumulation_steps": "", "global_batch_size": "", "learning_rate": "1.5410995617781415e-05", "learning_rate_scaling": "none", "reference_batch_size": "16", "num_train_epochs": "2.0", "seed": "42", "precision": "auto", "fine_tuning": "full", "compiler": "none", "training_arguments": "", "entry_script": "", "probe_steps": "", "dry_run": "false"}','{"point": {"instance_type": "ml.g5.xlarge", "instance_count": 2, "per_device_train_batch_size": 8, "learning_rate": 1.5410995617781415e-05}, "seed": 42, "repeats": null, "changes": {}, "kind": "trial", "predicted": {}}','{"status": "Completed", "metrics": {"train_seconds": 803.8000000000008, "throughput_samples_per_second": 19.10923115202785, "f1": 0.8887548770471354, "job_seconds": 923.7999999523163, "billable_seconds": 923.7999999523163, "cost_usd": 0.7226168888515896}, "reason": "", "curve": [[0.5, 0.7887548770471354], [1.0, 0.8887548770471354]], "again": false, "later": false, "expected": {}}');
INSERT INTO "paretune_ledger" VALUES('begun before',9,'f24d03857520','b075885cc20d4e859c535c0b4d7157d2',1.40995555555555518445e+00,4.80675555555555522602e-01,4.13754248998332485598e+00,10,1,1,'elsewhere 7660 1795215254','{"strategy": "ddp", "tensor_parallel_degree": "", "context_parallel_degree": "", "expert_parallel_degree": "", "hybrid_shard_degree": "", "activation_offloading": "false", "instance_type": "ml.g5.xlarge", "instance_count": "1", "processes_per_instance": "", "launcher": "simulated", "recorded_runs": "runs.csv", "simulation": "{\"capacity_error_rate\": 0.1, \"f1_noise\": 0.002, \"failure_rate\": 0.1}", "max_runtime_minutes": "60.0", "max_cost_usd": "", "local_price_usd_per_hour": "0.115", "spot": "false", "max_wait_minutes": "", "fallback_instance_types": "", "capacity_wait_minutes": "0.0", "region": "", "role": "", "bucket": "", "image_uri": "", "volume_gib": "", "keep_alive_minutes": "0.0", "subnets": "", "security_group_ids": "", "kms_key": "", "tags": "", "on_interrupt": "stop", "model": "embedded:all-MiniLM-L6-v2", "dataset": "embedded:rotten_tomatoes", "dataset_config_name": "", "validation_file": "", "test_file": "", "text_column": "text", "label_column": "label", "task": "classification", "max_train_samples": "", "max_eval_samples": "", "max_seq_length": "128", "per_device_train_batch_size": "8", "gradient_accumulation_steps": "", "global_batch_size": "", "learning_rate": "0.00015885304587515657", "learning_rate_scaling": "none", "reference_batch_size": "16", "num_train_epochs": "2.0", "seed": "42", "precision": "auto", "fine_tuning": "full", "compiler": "none", "training_arguments": "", "entry_script": "", "probe_steps": "", "dry_run": "false"}','{"point": {"instance_type": "ml.g5.xlarge", "instance_count": 1, "per_device_train_batch_size": 8, "learning_rate": 0.00015885304587515657}, "seed": 42, "repeats": null, "changes": {}, "kind": "trial", "predicted": {}}','{"status": "Stopped", "metrics": {}, "reason": "even an optimistic end (f1 0.860) would be beaten by the front", "curve": [[0.5, 0.7502187079890503]], "again": false, "later": false, "expected": {"f1": 0.7502187079890503, "billable_seconds": 1620.0, "job_seconds": 1620.0, "cost_usd": 0.6336}}');
INSERT INTO "paretune_ledger" VALUES('begun before',10,'bc76db4770bb','79a4ad265f9e4f76960db7b7832db771',1.12856527777777770893e+00,2.31410666681594323623e-01,4.36895315666492,11,1,1,'elsewhere 7660 1795215254','{"strategy": "ddp", "tensor_parallel_degree": "", "context_parallel_degree": "", "expert_parallel_degree": "", "hybrid_shard_degree": "", "activation_offloading": "false", "instance_type": "ml.g6.xlarge", "instance_count": "1", "processes_per_instance": "", "launcher": "simulated", "recorded_runs": "runs.csv", "simulation": "{\"capacity_error_rate\": 0.1, \"f1_noise\": 0.002, \"failure_rate\": 0.1}", "max_runtime_minutes": "60.0", "max_cost_usd": "", "local_price_usd_per_hour": "0.115", "spot": "false", "max_wait_minutes": "", "fallback_instance_types": "", "capacity_wait_minutes": "0.0", "region": "", "role": "", "bucket": "", "image_uri": "", "volume_gib": "", "keep_alive_minutes": "0.0", "subnets": "", "security_group_ids": "", "kms_key": "", "tags": "", "on_interrupt": "stop", "model": "embedded:all-MiniLM-L6-v2", "dataset": "embedded:rotten_tomatoes", "dataset_config_name": "", "validation_file": "", "test_file": "", "text_column": "text", "label_column": "label", "task": "classification", "max_train_samples": "", "max_eval_samples": "", "max_seq_length": "128", "per_device_train_batch_size": "16", "gradient_accumulation_steps": "", "global_batch_size": "", "learning_rate": "0.0001757774737928576", "learning_rate_scaling": "none", "reference_batch_size": "16", "num_train_epochs": "2.0", "seed": "42", "precision": "auto", "fine_tuning": "full", "compiler": "none", "training_arguments": "", "entry_script": "", "probe_steps": "", "dry_run": "false"}','{"point": {"instance_type": "ml.g6.xlarge", "instance_count": 1, "per_device_train_batch_size": 16, "learning_rate": 0.0001757774737928576}, "seed": 42, "repeats": null, "changes": {}, "kind": "trial", "predicted": {}}','{"status": "Stopped", "metrics": {}, "reason": "even an optimistic end (f1 0.856) would be beaten by the front", "curve": [[0.5, 0.7462095788163565]], "again": false, "later": false, "expected": {"f1": 0.7462095788163565, "billable_seconds": 1338.4000000953674, "job_seconds": 1338.4000000953674, "cost_usd": 0.41899355558541085}}');
INSERT INTO "paretune_ledger" VALUES('begun before',12,'cfac2dcf0100','9a5b677eb68b4de2a7862b452fbe6cc2',1.40995555555555518445e+00,2.44131555574205155734e-01,4.6130847122391234194e+00,12,1,1,'elsewhere 7660 1795215254','{"strategy": "ddp", "tensor_parallel_degree": "", "context_parallel_degree": "", "expert_parallel_degree": "", "hybrid_shard_degree": "", "activation_offloading": "false", "instance_type": "ml.g5.xlarge", "instance_count": "1", "processes_per_instance": "", "launcher": "simulated", "recorded_runs": "runs.csv", "simulation": "{\"capacity_error_rate\": 0.1, \"f1_noise\": 0.002, \"failure_rate\": 0.1}", "max_runtime_minutes": "60.0", "max_cost_usd": "", "local_price_usd_per_hour": "0.115", "spot": "false", "max_wait_minutes": "", "fallback_instance_types": "", "capacity_wait_minutes": "0.0", "region": "", "role": "", "bucket": "", "image_uri": "", "volume_gib": "", "keep_alive_minutes": "0.0", "subnets": "", "security_group_ids": "", "kms_key": "", "tags": "", "on_interrupt": "stop", "model": "embedded:all-MiniLM-L6-v2", "dataset": "embedded:rotten_tomatoes", "dataset_config_name": "", "validation_file": "", "test_file": "", "text_column": "text", "label_column": "label", "task": "classification", "max_train_samples": "", "max_eval_samples": "", "max_seq_length": "128", "per_device_train_batch_size": "32", "gradient_accumulation_steps": "", "global_batch_size": "", "learning_rate": "9.797985753939424e-05", "learning_rate_scaling": "none", "reference_batch_size": "16", "num_train_epochs": "2.0", "seed": "42", "precision": "auto", "fine_tuning": "full", "compiler": "none", "training_arguments": "", "entry_script": "", "probe_steps": "", "dry_run": "false"}','{"point": {"instance_type": "ml.g5.xlarge", "instance_count": 1, "per_device_train_batch_size": 32, "learning_rate": 9.797985753939424e-05}, "seed": 42, "repeats": null, "changes": {}, "kind": "trial", "predicted": {}}','{"status": "Stopped", "metrics": {}, "reason": "even an optimistic end (f1 0.882) would be beaten by the front", "curve": [[0.5, 0.7716044450563522]], "again": false, "later": false, "expected": {"f1": 0.7716044450563522, "billable_seconds": 1109.5999999046326, "job_seconds": 1109.5999999046326, "cost_usd": 0.4339768888515896}}');
INSERT INTO "paretune_ledger" VALUES('begun before',14,'5d926c492936','4797f649045648f098ea1cf22c4ce5ec',5.63982222222222073781e+00,5.7102222222222220882e-01,5.44962707950286429081e+00,14,1,1,'elsewhere 7660 1795215254','{"strategy": "ddp", "tensor_parallel_degree": "", "context_parallel_degree": "", "expert_parallel_degree": "", "hybrid_shard_degree": "", "activation_offloading": "false", "instance_type": "ml.g5.xlarge", "instance_count": "4", "processes_per_instance": "", "launcher": "simulated", "recorded_runs": "runs.csv", "simulation": "{\"capacity_error_rate\": 0.1, \"f1_noise\": 0.002, \"failure_rate\": 0.1}", "max_runtime_minutes": "60.0", "max_cost_usd": "", "local_price_usd_per_hour": "0.115", "spot": "false", "max_wait_minutes": "", "fallback_instance_types": "", "capacity_wait_minutes": "0.0", "region": "", "role": "", "bucket": "", "image_uri": "", "volume_gib": "", "keep_alive_minutes": "0.0", "subnets": "", "security_group_ids": "", "kms_key": "", "tags": "", "on_interrupt": "stop", "model": "embedded:all-MiniLM-L6-v2", "dataset": "embedded:rotten_tomatoes", "dataset_config_name": "", "validation_file": "", "test_file": "", "text_column": "text", "label_column": "label", "task": "classification", "max_train_samples": "", "max_eval_samples": "", "max_seq_length": "128", "per_device_train_batch_size": "8", "gradient_accumulation_steps": "", "global_batch_size": "", "learning_rate": "0.00029190423695537595", "learning_rate_scaling": "none", "reference_batch_size": "16", "num_train_epochs": "2.0", "seed": "42", "precision": "auto", "fine_tuning": "full", "compiler": "none", "training_arguments": "", "entry_script": "", "probe_steps": "", "dry_run": "false"}','{"point": {"instance_type": "ml.g5.xlarge", "instance_count": 4, "per_device_train_batch_size": 8, "learning_rate": 0.00029190423695537595}, "seed": 42, "repeats": null, "changes": {}, "kind": "trial", "predicted": {}}','{"status": "Stopped", "metrics": {}, "reason": "even an optimistic end (f1 0.823) would be beaten by the front", "curve": [[0.5, 0.7126615275997499]], "again": false, "later": false, "expected": {"f1": 0.7126615275997499, "billable_seconds": 550.8000001907349, "job_seconds": 550.8000001907349, "cost_usd": 0.8616960002983941}}');
INSERT INTO "paretune_ledger" VALUES('begun before',15,'7de13d4d2d5d','92877dc2fe384fcab40c15fa207ad5ef',4.51426111111111083573e+00,2.65520145041518607076e-01,4.87860485728064219301e+00,13,1,0,'elsewhere 7660 1795215254','{"strategy": "ddp", "tensor_parallel_degree": "", "context_parallel_degree": "", "expert_parallel_degree": "", "hybrid_shard_degree": "", "activation_offloading": "false", "instance_type": "ml.g6.xlarge", "instance_count": "4", "processes_per_instance": "", "launcher": "simulated", "recorded_runs": "runs.csv", "simulation": "{\"capacity_error_rate\": 0.1, \"f1_noise\": 0.002, \"failure_rate\": 0.1}", "max_runtime_minutes": "60.0", "max_cost_usd": "", "local_price_usd_per_hour": "0.115", "spot": "false", "max_wait_minutes": "", "fallback_instance_types": "", "capacity_wait_minutes": "0.0", "region": "", "role": "", "bucket": "", "image_uri": "", "volume_gib": "", "keep_alive_minutes": "0.0", "subnets": "", "security_group_ids": "", "kms_key": "", "tags": "", "on_interrupt": "stop", "model": "embedded:all-MiniLM-L6-v2", "dataset": "embedded:rotten_tomatoes", "dataset_config_name": "", "validation_file": "", "test_file": "", "text_column": "text", "label_column": "label", "task": "classification", "max_train_samples": "", "max_eval_samples": "", "max_seq_length": "128", "per_device_train_batch_size": "32", "gradient_accumulation_steps": "", "global_batch_size": "", "learning_rate": "0.0002200506553452034", "learning_rate_scaling": "none", "reference_batch_size": "16", "num_train_epochs": "2.0", "seed": "42", "precision": "auto", "fine_tuning": "full", "compiler": "none", "training_arguments": "", "entry_script": "", "probe_steps": "", "dry_run": "false"}','{"point": {"instance_type": "ml.g6.xlarge", "instance_count": 4, "per_device_train_batch_size": 32, "learning_rate": 0.0002200506553452034}, "seed": 42, "repeats": null, "changes": {}, "kind": "trial", "predicted": {}}','{"status": "Failed", "metrics": {}, "reason": "simulated, by failure_rate", "curve": [], "again": false, "later": false, "expected": {}}');
INSERT INTO "paretune_ledger" VALUES('begun before',16,'00c5d43bf468','88d74f7b03ae4613860e874f4172fc18',2.25713055555555541786e+00,NULL,NULL,NULL,1,0,'elsewhere 7660 1795215254','{"strategy": "ddp", "tensor_parallel_degree": "", "context_parallel_degree": "", "expert_parallel_degree": "", "hybrid_shard_degree": "", "activation_offloading": "false", "instance_type": "ml.g6.xlarge", "instance_count": "2", "processes_per_instance": "", "launcher": "simulated", "recorded_runs": "runs.csv", "simulation": "{\"capacity_error_rate\": 0.1, \"f1_noise\": 0.002, \"failure_rate\": 0.1}", "max_runtime_minutes": "60.0", "max_cost_usd": "", "local_price_usd_per_hour": "0.115", "spot": "false", "max_wait_minutes": "", "fallback_instance_types": "", "capacity_wait_minutes": "0.0", "region": "", "role": "", "bucket": "", "image_uri": "", "volume_gib": "", "keep_alive_minutes": "0.0", "subnets": "", "security_group_ids": "", "kms_key": "", "tags": "", "on_interrupt": "stop", "model": "embedded:all-MiniLM-L6-v2", "dataset": "embedded:rotten_tomatoes", "dataset_config_name": "", "validation_file": "", "test_file": "", "text_column": "text", "label_column": "label", "task": "classification", "max_train_samples": "", "max_eval_samples": "", "max_seq_length": "128", "per_device_train_batch_size": "32", "gradient_accumulation_steps": "", "global_batch_size": "", "learning_rate": "1.4799932767580541e-05", "learning_rate_scaling": "none", "reference_batch_size": "16", "num_train_epochs": "2.0", "seed": "42", "precision": "auto", "fine_tuning": "full", "compiler": "none", "training_arguments": "", "entry_script": "", "probe_steps": "", "dry_run": "false"}','{"point": {"instance_type": "ml.g6.xlarge", "instance_count": 2, "per_device_train_batch_size": 32, "learning_rate": 1.4799932767580541e-05}, "seed": 42, "repeats": null, "changes": {}, "kind": "trial", "predicted": {}}',NULL);
INSERT INTO "paretune_ledger" VALUES('begun before',17,'a2b2b40a02a9','81f192e43e7043cbbde54bd20977fc86',4.51426111111111083573e+00,3.3828783345275453831e-01,5.78791491295561844054e+00,15,1,1,'elsewhere 7660 1795215254','{"strategy": "ddp", "tensor_parallel_degree": "", "context_parallel_degree": "", "expert_parallel_degree": "", "hybrid_shard_degree": "", "activation_offloading": "false", "instance_type": "ml.g6.xlarge", "instance_count": "4", "processes_per_instance": "", "launcher": "simulated", "recorded_runs": "runs.csv", "simulation": "{\"capacity_error_rate\": 0.1, \"f1_noise\": 0.002, \"failure_rate\": 0.1}", "max_runtime_minutes": "60.0", "max_cost_usd": "", "local_price_usd_per_hour": "0.115", "spot": "false", "max_wait_minutes": "", "fallback_instance_types": "", "capacity_wait_minutes": "0.0", "region": "", "role": "", "bucket": "", "image_uri": "", "volume_gib": "", "keep_alive_minutes": "0.0", "subnets": "", "security_group_ids": "", "kms_key": "", "tags": "", "on_interrupt": "stop", "model": "embedded:all-MiniLM-L6-v2", "dataset": "embedded:rotten_tomatoes", "dataset_config_name": "", "validation_file": "", "test_file": "", "text_column": "text", "label_column": "label", "task": "classification", "max_train_samples": "", "max_eval_samples": "", "max_seq_length": "128", "per_device_train_batch_size": "32", "gradient_accumulation_steps": "", "global_batch_size": "", "learning_rate": "0.0001097892371179102", "learning_rate_scaling": "none", "reference_batch_size": "16", "num_train_epochs": "2.0", "seed": "42", "precision": "auto", "fine_tuning": "full", "compiler": "none", "training_arguments": "", "entry_script": "", "probe_steps": "", "dry_run": "false"}','{"point": {"instance_type": "ml.g6.xlarge", "instance_count": 4, "per_device_train_batch_size": 32, "learning_rate": 0.0001097892371179102}, "seed": 42, "repeats": null, "changes": {}, "kind": "trial", "predicted": {}}','{"status": "Stopped", "metrics": {}, "reason": "even an optimistic end (f1 0.852) would be beaten by the front", "curve": [[0.5, 0.7416074456825166]], "again": false, "later": false, "expected": {"f1": 0.7416074456825166, "billable_seconds": 404.19999980926514, "job_seconds": 404.19999980926514, "cost_usd": 0.5061482219833798}}');
INSERT INTO "paretune_ledger" VALUES('begun before',18,'d4685106beb3','f5f7ab962be34523b95f41065a28b072',1.40995555555555518445e+00,NULL,NULL,NULL,1,0,'elsewhere 7660 1795215254','{"strategy": "ddp", "tensor_parallel_degree": "", "context_parallel_degree": "", "expert_parallel_degree": "", "hybrid_shard_degree": "", "activation_offloading": "false", "instance_type": "ml.g5.xlarge", "instance_count": "1", "processes_per_instance": "", "launcher": "simulated", "recorded_runs": "runs.csv", "simulation": "{\"capacity_error_rate\": 0.1, \"f1_noise\": 0.002, \"failure_rate\": 0.1}", "max_runtime_minutes": "60.0", "max_cost_usd": "", "local_price_usd_per_hour": "0.115", "spot": "false", "max_wait_minutes": "", "fallback_instance_types": "", "capacity_wait_minutes": "0.0", "region": "", "role": "", "bucket": "", "image_uri": "", "volume_gib": "", "keep_alive_minutes": "0.0", "subnets": "", "security_group_ids": "", "kms_key": "", "tags": "", "on_interrupt": "stop", "model": "embedded:all-MiniLM-L6-v2", "dataset": "embedded:rotten_tomatoes", "dataset_config_name": "", "validation_file": "", "test_file": "", "text_column": "text", "label_column": "label", "task": "classification", "max_train_samples": "", "max_eval_samples": "", "max_seq_length": "128", "per_device_train_batch_size": "32", "gradient_accumulation_steps": "", "global_batch_size": "", "learning_rate": "0.00013255106658419374", "learning_rate_scaling": "none", "reference_batch_size": "16", "num_train_epochs": "2.0", "seed": "42", "precision": "auto", "fine_tuning": "full", "compiler": "none", "training_arguments": "", "entry_script": "", "probe_steps": "", "dry_run": "false"}','{"point": {"instance_type": "ml.g5.xlarge", "instance_count": 1, "per_device_train_batch_size": 32, "learning_rate": 0.00013255106658419374}, "seed": 42, "repeats": null, "changes": {}, "kind": "trial", "predicted": {}}',NULL);
CREATE TABLE paretune_studies (
	name VARCHAR(255) NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	mark VARCHAR(64) NOT NULL, 
	described TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "paretune_studies" VALUES('begun before','420e58f5441f4c3dbbed565850b0df9d','94d8157b0fd04582a09e47437a53968a','{"job": "{\"launcher\": \"simulated\", \"recorded_runs\": \"runs.csv\", \"num_train_epochs\": 2.0, \"max_runtime_minutes\": 60.0, \"simulation\": \"{\\\"capacity_error_rate\\\": 0.1, \\\"f1_noise\\\": 0.002, \\\"failure_rate\\\": 0.1}\"}", "search": "{\"instance_type\": {\"choices\": [\"ml.g5.xlarge\", \"ml.g6.xlarge\"]}, \"instance_count\": {\"choices\": [1, 2, 4]}, \"per_device_train_batch_size\": {\"choices\": [8, 16, 32, 64]}, \"learning_rate\": {\"low\": 1e-05, \"high\": 0.0003, \"log\": true}}", "objectives": "{\"cost_usd\": \"minimize\", \"f1\": \"maximize\"}"}');
CREATE TABLE studies (
	study_id INTEGER NOT NULL, 
	study_name VARCHAR(512) NOT NULL, 
	PRIMARY KEY (study_id)
);
INSERT INTO "studies" VALUES(1,'begun before');
CREATE TABLE study_directions (
	study_direction_id INTEGER NOT NULL, 
	direction VARCHAR(8) NOT NULL, 
	study_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	PRIMARY KEY (study_direction_id), 
	UNIQUE (study_id, objective), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_directions" VALUES(1,'MINIMIZE',1,0);
INSERT INTO "study_directions" VALUES(2,'MAXIMIZE',1,1);
CREATE TABLE study_system_attributes (
	study_system_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_system_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_system_attributes" VALUES(1,1,'study:metric_names','["cost_usd", "f1"]');
CREATE TABLE study_user_attributes (
	study_user_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_user_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
CREATE TABLE trial_heartbeats (
	trial_heartbeat_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	heartbeat DATETIME NOT NULL, 
	PRIMARY KEY (trial_heartbeat_id), 
	UNIQUE (trial_id), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_intermediate_values (
	trial_intermediate_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	step INTEGER NOT NULL, 
	intermediate_value FLOAT, 
	intermediate_value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_intermediate_value_id), 
	UNIQUE (trial_id, step), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_params (
	param_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	param_name VARCHAR(512), 
	param_value FLOAT, 
	distribution_json TEXT, 
	PRIMARY KEY (param_id), 
	UNIQUE (trial_id, param_name), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_params" VALUES(1,1,'instance_type',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["ml.g5.xlarge", "ml.g6.xlarge"]}}');
INSERT INTO "trial_params" VALUES(2,1,'rank of instance_count',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 2}}');
INSERT INTO "trial_params" VALUES(3,1,'rank of per_device_train_batch_size',1.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 3}}');
INSERT INTO "trial_params" VALUES(4,1,'learning_rate',5.0e-05,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 1e-05, "high": 0.0003, "log": true}}');
INSERT INTO "trial_params" VALUES(5,2,'instance_type',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["ml.g5.xlarge", "ml.g6.xlarge"]}}');
INSERT INTO "trial_params" VALUES(6,2,'rank of instance_count',1.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 2}}');
INSERT INTO "trial_params" VALUES(7,2,'rank of per_device_train_batch_size',1.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 3}}');
INSERT INTO "trial_params" VALUES(8,2,'learning_rate',4.17767080604191832354e-05,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 1e-05, "high": 0.0003, "log": true}}');
INSERT INTO "trial_params" VALUES(9,3,'instance_type',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["ml.g5.xlarge", "ml.g6.xlarge"]}}');
INSERT INTO "trial_params" VALUES(10,3,'rank of instance_count',1.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 2}}');
INSERT INTO "trial_params" VALUES(11,3,'rank of per_device_train_batch_size',1.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 3}}');
INSERT INTO "trial_params" VALUES(12,3,'learning_rate',2.47819935377390038687e-05,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 1e-05, "high": 0.0003, "log": true}}');
INSERT INTO "trial_params" VALUES(13,4,'instance_type',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["ml.g5.xlarge", "ml.g6.xlarge"]}}');
INSERT INTO "trial_params" VALUES(14,4,'rank of instance_count',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 2}}');
INSERT INTO "trial_params" VALUES(15,4,'rank of per_device_train_batch_size',2.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 3}}');
INSERT INTO "trial_params" VALUES(16,4,'learning_rate',1.87257855621195903224e-05,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 1e-05, "high": 0.0003, "log": true}}');
INSERT INTO "trial_params" VALUES(17,5,'instance_type',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["ml.g5.xlarge", "ml.g6.xlarge"]}}');
INSERT INTO "trial_params" VALUES(18,5,'rank of instance_count',1.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 2}}');
INSERT INTO "trial_params" VALUES(19,5,'rank of per_device_train_batch_size',3.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 3}}');
INSERT INTO "trial_params" VALUES(20,5,'learning_rate',1.31113082214847749638e-05,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 1e-05, "high": 0.0003, "log": true}}');
INSERT INTO "trial_params" VALUES(21,6,'instance_type',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["ml.g5.xlarge", "ml.g6.xlarge"]}}');
INSERT INTO "trial_params" VALUES(22,6,'rank of instance_count',1.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 2}}');
INSERT INTO "trial_params" VALUES(23,6,'rank of per_device_train_batch_size',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 3}}');
INSERT INTO "trial_params" VALUES(24,6,'learning_rate',1.54109956177814150053e-05,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 1e-05, "high": 0.0003, "log": true}}');
INSERT INTO "trial_params" VALUES(25,7,'instance_type',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["ml.g5.xlarge", "ml.g6.xlarge"]}}');
INSERT INTO "trial_params" VALUES(26,7,'rank of instance_count',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 2}}');
INSERT INTO "trial_params" VALUES(27,7,'rank of per_device_train_batch_size',2.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 3}}');
INSERT INTO "trial_params" VALUES(28,7,'learning_rate',1.87257855621195903224e-05,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 1e-05, "high": 0.0003, "log": true}}');
INSERT INTO "trial_params" VALUES(29,8,'instance_type',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["ml.g5.xlarge", "ml.g6.xlarge"]}}');
INSERT INTO "trial_params" VALUES(30,8,'rank of instance_count',1.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 2}}');
INSERT INTO "trial_params" VALUES(31,8,'rank of per_device_train_batch_size',3.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 3}}');
INSERT INTO "trial_params" VALUES(32,8,'learning_rate',1.31113082214847749638e-05,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 1e-05, "high": 0.0003, "log": true}}');
INSERT INTO "trial_params" VALUES(33,9,'instance_type',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["ml.g5.xlarge", "ml.g6.xlarge"]}}');
INSERT INTO "trial_params" VALUES(34,9,'rank of instance_count',1.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 2}}');
INSERT INTO "trial_params" VALUES(35,9,'rank of per_device_train_batch_size',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 3}}');
INSERT INTO "trial_params" VALUES(36,9,'learning_rate',1.54109956177814150053e-05,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 1e-05, "high": 0.0003, "log": true}}');
INSERT INTO "trial_params" VALUES(37,10,'instance_type',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["ml.g5.xlarge", "ml.g6.xlarge"]}}');
INSERT INTO "trial_params" VALUES(38,10,'rank of instance_count',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 2}}');
INSERT INTO "trial_params" VALUES(39,10,'rank of per_device_train_batch_size',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 3}}');
INSERT INTO "trial_params" VALUES(40,10,'learning_rate',1.58853045875156570487e-04,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 1e-05, "high": 0.0003, "log": true}}');
INSERT INTO "trial_params" VALUES(41,11,'instance_type',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["ml.g5.xlarge", "ml.g6.xlarge"]}}');
INSERT INTO "trial_params" VALUES(42,11,'rank of instance_count',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 2}}');
INSERT INTO "trial_params" VALUES(43,11,'rank of per_device_train_batch_size',1.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 3}}');
INSERT INTO "trial_params" VALUES(44,11,'learning_rate',1.75777473792857602541e-04,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 1e-05, "high": 0.0003, "log": true}}');
INSERT INTO "trial_params" VALUES(45,12,'instance_type',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["ml.g5.xlarge", "ml.g6.xlarge"]}}');
INSERT INTO "trial_params" VALUES(46,12,'rank of instance_count',1.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 2}}');
INSERT INTO "trial_params" VALUES(47,12,'rank of per_device_train_batch_size',3.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 3}}');
INSERT INTO "trial_params" VALUES(48,12,'learning_rate',4.58488755082698778292e-05,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 1e-05, "high": 0.0003, "log": true}}');
INSERT INTO "trial_params" VALUES(49,13,'instance_type',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["ml.g5.xlarge", "ml.g6.xlarge"]}}');
INSERT INTO "trial_params" VALUES(50,13,'rank of instance_count',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 2}}');
INSERT INTO "trial_params" VALUES(51,13,'rank of per_device_train_batch_size',2.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 3}}');
INSERT INTO "trial_params" VALUES(52,13,'learning_rate',9.7979857539394235831e-05,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 1e-05, "high": 0.0003, "log": true}}');
INSERT INTO "trial_params" VALUES(53,14,'instance_type',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["ml.g5.xlarge", "ml.g6.xlarge"]}}');
INSERT INTO "trial_params" VALUES(54,14,'rank of instance_count',2.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 2}}');
INSERT INTO "trial_params" VALUES(55,14,'rank of per_device_train_batch_size',3.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 3}}');
INSERT INTO "trial_params" VALUES(56,14,'learning_rate',1.03185889415645027679e-05,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 1e-05, "high": 0.0003, "log": true}}');
INSERT INTO "trial_params" VALUES(57,15,'instance_type',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["ml.g5.xlarge", "ml.g6.xlarge"]}}');
INSERT INTO "trial_params" VALUES(58,15,'rank of instance_count',2.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 2}}');
INSERT INTO "trial_params" VALUES(59,15,'rank of per_device_train_batch_size',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 3}}');
INSERT INTO "trial_params" VALUES(60,15,'learning_rate',2.91904236955375950314e-04,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 1e-05, "high": 0.0003, "log": true}}');
INSERT INTO "trial_params" VALUES(61,16,'instance_type',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["ml.g5.xlarge", "ml.g6.xlarge"]}}');
INSERT INTO "trial_params" VALUES(62,16,'rank of instance_count',2.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 2}}');
INSERT INTO "trial_params" VALUES(63,16,'rank of per_device_train_batch_size',2.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 3}}');
INSERT INTO "trial_params" VALUES(64,16,'learning_rate',2.20050655345203406178e-04,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 1e-05, "high": 0.0003, "log": true}}');
INSERT INTO "trial_params" VALUES(65,17,'instance_type',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["ml.g5.xlarge", "ml.g6.xlarge"]}}');
INSERT INTO "trial_params" VALUES(66,17,'rank of instance_count',1.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 2}}');
INSERT INTO "trial_params" VALUES(67,17,'rank of per_device_train_batch_size',2.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 3}}');
INSERT INTO "trial_params" VALUES(68,17,'learning_rate',1.47999327675805414763e-05,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 1e-05, "high": 0.0003, "log": true}}');
INSERT INTO "trial_params" VALUES(69,18,'instance_type',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["ml.g5.xlarge", "ml.g6.xlarge"]}}');
INSERT INTO "trial_params" VALUES(70,18,'rank of instance_count',2.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 2}}');
INSERT INTO "trial_params" VALUES(71,18,'rank of per_device_train_batch_size',2.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 3}}');
INSERT INTO "trial_params" VALUES(72,18,'learning_rate',1.09789237117910201918e-04,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 1e-05, "high": 0.0003, "log": true}}');
INSERT INTO "trial_params" VALUES(73,19,'instance_type',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["ml.g5.xlarge", "ml.g6.xlarge"]}}');
INSERT INTO "trial_params" VALUES(74,19,'rank of instance_count',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 2}}');
INSERT INTO "trial_params" VALUES(75,19,'rank of per_device_train_batch_size',2.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 3}}');
INSERT INTO "trial_params" VALUES(76,19,'learning_rate',1.32551066584193737163e-04,'{"name": "FloatDistribution", "attributes": {"step": null, "low": 1e-05, "high": 0.0003, "log": true}}');
CREATE TABLE trial_system_attributes (
	trial_system_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_system_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_system_attributes" VALUES(1,2,'constraints:memory','0.0');
INSERT INTO "trial_system_attributes" VALUES(2,2,'constraints:possible','0.0');
INSERT INTO "trial_system_attributes" VALUES(3,1,'constraints:memory','0.0');
INSERT INTO "trial_system_attributes" VALUES(4,1,'constraints:possible','0.0');
INSERT INTO "trial_system_attributes" VALUES(5,8,'constraints:memory','1.0');
INSERT INTO "trial_system_attributes" VALUES(6,8,'constraints:possible','0.0');
INSERT INTO "trial_system_attributes" VALUES(7,9,'constraints:memory','0.0');
INSERT INTO "trial_system_attributes" VALUES(8,9,'constraints:possible','0.0');
INSERT INTO "trial_system_attributes" VALUES(9,7,'constraints:memory','0.0');
INSERT INTO "trial_system_attributes" VALUES(10,7,'constraints:possible','0.0');
INSERT INTO "trial_system_attributes" VALUES(11,12,'constraints:memory','1.0');
INSERT INTO "trial_system_attributes" VALUES(12,12,'constraints:possible','0.0');
INSERT INTO "trial_system_attributes" VALUES(13,10,'constraints:memory','0.0');
INSERT INTO "trial_system_attributes" VALUES(14,10,'constraints:possible','0.0');
INSERT INTO "trial_system_attributes" VALUES(15,14,'constraints:memory','1.0');
INSERT INTO "trial_system_attributes" VALUES(16,14,'constraints:possible','0.0');
INSERT INTO "trial_system_attributes" VALUES(17,11,'constraints:memory','0.0');
INSERT INTO "trial_system_attributes" VALUES(18,11,'constraints:possible','0.0');
INSERT INTO "trial_system_attributes" VALUES(19,13,'constraints:memory','0.0');
INSERT INTO "trial_system_attributes" VALUES(20,13,'constraints:possible','0.0');
INSERT INTO "trial_system_attributes" VALUES(21,15,'constraints:memory','0.0');
INSERT INTO "trial_system_attributes" VALUES(22,15,'constraints:possible','0.0');
INSERT INTO "trial_system_attributes" VALUES(23,18,'constraints:memory','0.0');
INSERT INTO "trial_system_attributes" VALUES(24,18,'constraints:possible','0.0');
CREATE TABLE trial_user_attributes (
	trial_user_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_user_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_user_attributes" VALUES(1,1,'point','{"instance_type": "ml.g6.xlarge", "instance_count": 1, "per_device_train_batch_size": 16, "learning_rate": 5e-05}');
INSERT INTO "trial_user_attributes" VALUES(2,2,'point','{"instance_type": "ml.g5.xlarge", "instance_count": 2, "per_device_train_batch_size": 16, "learning_rate": 4.177670806041918e-05}');
INSERT INTO "trial_user_attributes" VALUES(3,3,'point','{"instance_type": "ml.g5.xlarge", "instance_count": 2, "per_device_train_batch_size": 16, "learning_rate": 2.4781993537739004e-05}');
INSERT INTO "trial_user_attributes" VALUES(4,4,'point','{"instance_type": "ml.g5.xlarge", "instance_count": 1, "per_device_train_batch_size": 32, "learning_rate": 1.872578556211959e-05}');
INSERT INTO "trial_user_attributes" VALUES(5,5,'point','{"instance_type": "ml.g6.xlarge", "instance_count": 2, "per_device_train_batch_size": 64, "learning_rate": 1.3111308221484775e-05}');
INSERT INTO "trial_user_attributes" VALUES(6,6,'point','{"instance_type": "ml.g5.xlarge", "instance_count": 2, "per_device_train_batch_size": 8, "learning_rate": 1.5410995617781415e-05}');
INSERT INTO "trial_user_attributes" VALUES(7,7,'point','{"instance_type": "ml.g5.xlarge", "instance_count": 1, "per_device_train_batch_size": 32, "learning_rate": 1.872578556211959e-05}');
INSERT INTO "trial_user_attributes" VALUES(8,8,'point','{"instance_type": "ml.g6.xlarge", "instance_count": 2, "per_device_train_batch_size": 64, "learning_rate": 1.3111308221484775e-05}');
INSERT INTO "trial_user_attributes" VALUES(9,9,'point','{"instance_type": "ml.g5.xlarge", "instance_count": 2, "per_device_train_batch_size": 8, "learning_rate": 1.5410995617781415e-05}');
INSERT INTO "trial_user_attributes" VALUES(10,10,'point','{"instance_type": "ml.g5.xlarge", "instance_count": 1, "per_device_train_batch_size": 8, "learning_rate": 0.00015885304587515657}');
INSERT INTO "trial_user_attributes" VALUES(11,11,'point','{"instance_type": "ml.g6.xlarge", "instance_count": 1, "per_device_train_batch_size": 16, "learning_rate": 0.0001757774737928576}');
INSERT INTO "trial_user_attributes" VALUES(12,12,'point','{"instance_type": "ml.g6.xlarge", "instance_count": 2, "per_device_train_batch_size": 64, "learning_rate": 4.584887550826988e-05}');
INSERT INTO "trial_user_attributes" VALUES(13,13,'point','{"instance_type": "ml.g5.xlarge", "instance_count": 1, "per_device_train_batch_size": 32, "learning_rate": 9.797985753939424e-05}');
INSERT INTO "trial_user_attributes" VALUES(14,14,'point','{"instance_type": "ml.g5.xlarge", "instance_count": 4, "per_device_train_batch_size": 64, "learning_rate": 1.0318588941564503e-05}');
INSERT INTO "trial_user_attributes" VALUES(15,15,'point','{"instance_type": "ml.g5.xlarge", "instance_count": 4, "per_device_train_batch_size": 8, "learning_rate": 0.00029190423695537595}');
INSERT INTO "trial_user_attributes" VALUES(16,16,'point','{"instance_type": "ml.g6.xlarge", "instance_count": 4, "per_device_train_batch_size": 32, "learning_rate": 0.0002200506553452034}');
INSERT INTO "trial_user_attributes" VALUES(17,17,'point','{"instance_type": "ml.g6.xlarge", "instance_count": 2, "per_device_train_batch_size": 32, "learning_rate": 1.4799932767580541e-05}');
INSERT INTO "trial_user_attributes" VALUES(18,18,'point','{"instance_type": "ml.g6.xlarge", "instance_count": 4, "per_device_train_batch_size": 32, "learning_rate": 0.0001097892371179102}');
INSERT INTO "trial_user_attributes" VALUES(19,19,'point','{"instance_type": "ml.g5.xlarge", "instance_count": 1, "per_device_train_batch_size": 32, "learning_rate": 0.00013255106658419374}');
CREATE TABLE trial_values (
	trial_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	value FLOAT, 
	value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_value_id), 
	UNIQUE (trial_id, objective), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_values" VALUES(1,2,0,6.04579555555555314683e-01,'FINITE');
INSERT INTO "trial_values" VALUES(2,2,1,0.881363029420611,'FINITE');
INSERT INTO "trial_values" VALUES(3,1,0,4.18993555555555452496e-01,'FINITE');
INSERT INTO "trial_values" VALUES(4,1,1,8.87697421424098132014e-01,'FINITE');
INSERT INTO "trial_values" VALUES(5,8,0,6.04579555555555314683e-01,'FINITE');
INSERT INTO "trial_values" VALUES(6,8,1,0.881363029420611,'FINITE');
INSERT INTO "trial_values" VALUES(7,9,0,7.22616888851589589393e-01,'FINITE');
INSERT INTO "trial_values" VALUES(8,9,1,8.88754877047135405376e-01,'FINITE');
INSERT INTO "trial_values" VALUES(9,7,0,4.33976888851589581719e-01,'FINITE');
INSERT INTO "trial_values" VALUES(10,7,1,8.84614037947349385326e-01,'FINITE');
INSERT INTO "trial_values" VALUES(11,12,0,7.22616888851589589393e-01,'FINITE');
INSERT INTO "trial_values" VALUES(12,12,1,0.881363029420611,'FINITE');
INSERT INTO "trial_values" VALUES(13,10,0,0.6336,'FINITE');
INSERT INTO "trial_values" VALUES(14,10,1,7.5021870798905032629e-01,'FINITE');
INSERT INTO "trial_values" VALUES(15,14,0,7.22616888851589589393e-01,'FINITE');
INSERT INTO "trial_values" VALUES(16,14,1,7.5021870798905032629e-01,'FINITE');
INSERT INTO "trial_values" VALUES(17,11,0,4.18993555585410848429e-01,'FINITE');
INSERT INTO "trial_values" VALUES(18,11,1,7.46209578816356522423e-01,'FINITE');
INSERT INTO "trial_values" VALUES(19,13,0,4.33976888851589581719e-01,'FINITE');
INSERT INTO "trial_values" VALUES(20,13,1,7.71604445056352172827e-01,'FINITE');
INSERT INTO "trial_values" VALUES(21,15,0,8.6169600029839410471e-01,'FINITE');
INSERT INTO "trial_values" VALUES(22,15,1,7.12661527599749877737e-01,'FINITE');
INSERT INTO "trial_values" VALUES(23,18,0,5.06148221983379831279e-01,'FINITE');
INSERT INTO "trial_values" VALUES(24,18,1,7.41607445682516575047e-01,'FINITE');
CREATE TABLE trials (
	trial_id INTEGER NOT NULL, 
	number INTEGER, 
	study_id INTEGER, 
	state VARCHAR(8) NOT NULL, 
	datetime_start DATETIME, 
	datetime_complete DATETIME, 
	PRIMARY KEY (trial_id), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "trials" VALUES(1,0,1,'COMPLETE','2026-11-20 22:54:11.948364','2026-11-20 22:54:12.958238');
INSERT INTO "trials" VALUES(2,1,1,'COMPLETE','2026-11-20 22:54:12.034389','2026-11-20 22:54:12.254803');
INSERT INTO "trials" VALUES(3,2,1,'FAIL','2026-11-20 22:54:12.081604','2026-11-20 22:54:12.139906');
INSERT INTO "trials" VALUES(4,3,1,'FAIL','2026-11-20 22:54:12.155567','2026-11-20 22:54:13.024324');
INSERT INTO "trials" VALUES(5,4,1,'FAIL','2026-11-20 22:54:12.844974','2026-11-20 22:54:13.042490');
INSERT INTO "trials" VALUES(6,5,1,'FAIL','2026-11-20 22:54:12.967549','2026-11-20 22:54:13.060335');
INSERT INTO "trials" VALUES(7,6,1,'COMPLETE','2026-11-20 22:54:17.045426','2026-11-20 22:54:18.242172');
INSERT INTO "trials" VALUES(8,7,1,'COMPLETE','2026-11-20 22:54:17.156236','2026-11-20 22:54:17.265490');
INSERT INTO "trials" VALUES(9,8,1,'COMPLETE','2026-11-20 22:54:17.192380','2026-11-20 22:54:18.089770');
INSERT INTO "trials" VALUES(10,9,1,'COMPLETE','2026-11-20 22:54:17.990982','2026-11-20 22:54:18.361267');
INSERT INTO "trials" VALUES(11,10,1,'COMPLETE','2026-11-20 22:54:18.100785','2026-11-20 22:54:18.477308');
INSERT INTO "trials" VALUES(12,11,1,'COMPLETE','2026-11-20 22:54:18.250640','2026-11-20 22:54:18.282323');
INSERT INTO "trials" VALUES(13,12,1,'COMPLETE','2026-11-20 22:54:18.289348','2026-11-20 22:54:18.554385');
INSERT INTO "trials" VALUES(14,13,1,'COMPLETE','2026-11-20 22:54:18.369791','2026-11-20 22:54:18.400530');
INSERT INTO "trials" VALUES(15,14,1,'COMPLETE','2026-11-20 22:54:18.407620','2026-11-20 22:54:18.695582');
INSERT INTO "trials" VALUES(16,15,1,'FAIL','2026-11-20 22:54:18.485985','2026-11-20 22:54:18.619590');
INSERT INTO "trials" VALUES(17,16,1,'RUNNING','2026-11-20 22:54:18.562723',NULL);
INSERT INTO "trials" VALUES(18,17,1,'COMPLETE','2026-11-20 22:54:18.626990','2026-11-20 22:54:18.776503');
INSERT INTO "trials" VALUES(19,18,1,'RUNNING','2026-11-20 22:54:18.704263',NULL);
CREATE TABLE version_info (
	version_info_id INTEGER NOT NULL, 
	schema_version INTEGER, 
	library_version VARCHAR(256), 
	PRIMARY KEY (version_info_id), 
	CHECK (version_info_id=1)
);
INSERT INTO "version_info" VALUES(1,12,'5.0.0');
CREATE INDEX paretune_ledger_place ON paretune_ledger (study, place);
CREATE INDEX paretune_ledger_identity ON paretune_ledger (study, identity);
CREATE UNIQUE INDEX ix_studies_study_name ON studies (study_name);
CREATE INDEX ix_trials_study_id ON trials (study_id);
COMMIT;
