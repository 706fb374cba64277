"""How the shipped policies are made: a scripted expert, data, training, weights, and the evaluation in closed loop.

    recipes       each policy's world, data, network and training, in one value
    collecting    episodes of the expert, disturbed by chance or by the policy in training
    dataset       episodes on disk, and the training windows in them
    scaling       how states and actions are scaled
    prompts       encoded instructions, drawn anew now and then
    objective     the flow-matching loss
    trainer       the training loop; checkpoints
    driving       the policy as it is served, in simulations
    control       chunks that come late: wait, switch, continue
    evaluation    success in closed loop
    report        tables, JSON, plots
    export        card and weights
    pipeline      all of it, resumable
    cli           `antiphon train policy`

Nothing here is needed to serve a policy. Needs `pip install 'antiphon[train]'`.
"""
