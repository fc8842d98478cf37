wf = Workflow("transfer_funds")

@wf.step("debit_source")
async def debit(ctx):
    return await accounts.debit(ctx.data["source"], ctx.data["amount"])

@wf.step("credit_destination", depends_on=["debit_source"])
async def credit(ctx):
    try:
        return await accounts.credit(ctx.data["destination"], ctx.data["amount"])
    except InsufficientFundsError:
        # Compensate: refund the source account
        await accounts.credit(ctx.data["source"], ctx.data["amount"])
        raise PermanentError("Transfer failed, funds refunded")
