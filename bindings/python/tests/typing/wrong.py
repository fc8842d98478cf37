"""Calls that type checkers must refuse: each line below that ends with `# wrong`, and no other."""

from typed import Order, buy, charge

from wigwag import WorkflowClient, sync


async def use(client: WorkflowClient) -> None:
    await client.start(buy, 5)  # wrong
    await client.start(buy)  # wrong
    await charge("tea")  # wrong
    await client.start(buy, Order("tea"), id=5)  # wrong


def use_sync(client: sync.WorkflowClient) -> None:
    client.start(buy, 5)  # wrong
    client.start(buy, Order("tea"), id=5)  # wrong
    client.get(5)  # wrong
    client.nothing()  # wrong
