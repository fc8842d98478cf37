@wf.step("process_items")
async def process(ctx):
    items = ctx.data["items"]

    # Fan-out: submit child tasks for each item
    child_ids = []
    for item in items:
        task = await queue.submit(
            "process_single_item",
            {"item": item},
            idempotency_key=f"{ctx.workflow_id}:item:{item['id']}",
        )
        child_ids.append(task.id)

    # Fan-in: wait for all children to complete
    await ctx.wait_for_tasks(child_ids, timeout=timedelta(hours=1))

    # Collect results
    results = [await queue.get(tid) for tid in child_ids]
    return {"processed": len(results)}
