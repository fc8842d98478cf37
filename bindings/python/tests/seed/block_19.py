from wigwag import Workflow, step, WorkflowClient

# Define workflow
wf = Workflow("order_fulfillment")

@wf.step("validate")
async def validate(ctx):
    return {"valid": True}

@wf.step("process", depends_on=["validate"])
async def process(ctx):
    return {"processed": True}

# Start workflow
client = WorkflowClient(queue)
run = await client.start("order_fulfillment", {"order_id": "ORD-123"})
print(f"Started workflow: {run.id}")

# Check status
status = await client.get(run.id)
print(f"Status: {status.status}, current steps: {status.current_steps}")

# Wait for completion
result = await client.wait(run.id, timeout=timedelta(minutes=30))
print(f"Workflow completed: {result.data}")

# Cancel
await client.cancel(run.id, reason="User requested")

# Send signal
await client.signal(run.id, "approval", {"approved": True})
