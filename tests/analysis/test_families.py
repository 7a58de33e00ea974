from dlscale.analysis.families import family_of


def family(make_record, **fields):
    return family_of(make_record(**fields).case.cell, system="local")


def test_the_usual_way_to_run_a_network_is_not_named(make_record):
    usual = family(make_record)
    assert usual.title == "hep_cnn tiny, torch, weak scaling on local"
    assert usual.constants == "8 samples per rank and step, fp32, 1 core per rank"
    assert usual.file_stem == "hep_cnn-tiny-torch-weak-fp32"


def test_compilation_and_memory_format_are_named_where_they_are_unusual(make_record):
    unusual = family(make_record, compiled=True, memory_format="channels_first")
    assert unusual.title == "hep_cnn tiny, torch compiled channels_first, weak scaling on local"
    assert (
        unusual.constants
        == "8 samples per rank and step, fp32, torch.compile, channels_first, 1 core per rank"
    )
    assert unusual.file_stem == "hep_cnn-tiny-torch-weak-fp32-compiled-channels_first"
    assert ", XLA, " in family(make_record, compiled=True, framework="tensorflow").constants


def test_a_gpu_is_named_and_shares_no_curve_with_cores(make_record):
    on_gpu = family(make_record, device="gpu")
    assert on_gpu != family(make_record)
    assert on_gpu.title == "hep_cnn tiny, torch gpu, weak scaling on local"
    assert on_gpu.constants == "8 samples per rank and step, fp32, gpu, 1 core per rank"
    assert on_gpu.file_stem == "hep_cnn-tiny-torch-weak-fp32-gpu"


def test_a_reference_covers_only_what_ran_the_same_way(make_record):
    reference = family(make_record, control="whole_machine", cores_per_rank=4)
    assert family(make_record).covers(reference)
    assert not family(make_record, compiled=True).covers(reference)
    assert not family(make_record, memory_format="channels_first").covers(reference)
    assert not family(make_record, device="gpu").covers(reference)
