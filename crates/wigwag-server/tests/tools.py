"""What boto3 does with a server's `/s3`, step by step; the first that goes wrong ends it.

Called with the endpoint, an access key, its secret, a certificate to trust or `-`, a log entry and a state to read.
"""

import base64
import hashlib
import io
import sys
import urllib.error
import urllib.request
import ssl

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

ENDPOINT, KEY, SECRET, TRUST, ENTRY, STATE = sys.argv[1:]
BUCKET = "wigwag"


def client(secret=SECRET, **more):
    config = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, **more)
    return boto3.client(
        "s3", endpoint_url=ENDPOINT, aws_access_key_id=KEY, aws_secret_access_key=secret,
        region_name="eu-central-1", verify=False if TRUST == "-" else TRUST, config=config,
    )


def refused(code, call, **arguments):
    try:
        call(Bucket=BUCKET, **arguments)
    except ClientError as error:
        found = error.response["Error"]["Code"]
        assert found == code, f"wanted {code}, got {found}: {error}"
        return
    raise AssertionError(f"not refused with {code}: {arguments}")


def body(key, **more):
    return s3.get_object(Bucket=BUCKET, Key=key, **more)["Body"].read()


def fetch(url):
    context = None if TRUST == "-" else ssl.create_default_context(cafile=TRUST)
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), *([urllib.request.HTTPSHandler(context=context)] if context else [])
    )
    return opener.open(url).read()


s3 = client()

assert [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]] == [BUCKET]
s3.head_bucket(Bucket=BUCKET)
s3.get_bucket_location(Bucket=BUCKET)
refused("404", lambda Bucket: s3.head_bucket(Bucket="other"))

# A run's log and state, as they are in the store.
found = s3.list_objects_v2(Bucket=BUCKET, Prefix=ENTRY)["Contents"]
assert [entry["Key"] for entry in found] == [ENTRY], found
assert found[0]["Size"] == len(body(ENTRY)) == s3.head_object(Bucket=BUCKET, Key=ENTRY)["ContentLength"]
print(hashlib.sha256(body(ENTRY)).hexdigest())
print(hashlib.sha256(body(STATE)).hexdigest())

# More keys than a page has, in both ways of listing.
for name in ["list_objects_v2", "list_objects"]:
    pages = s3.get_paginator(name).paginate(Bucket=BUCKET, Prefix="many/")
    keys = [entry["Key"] for page in pages for entry in page["Contents"]]
    assert len(keys) == 1100 and keys == sorted(set(keys)), (name, len(keys))
    pages = s3.get_paginator(name).paginate(Bucket=BUCKET, Delimiter="/", PaginationConfig={"PageSize": 2})
    groups = [group["Prefix"] for page in pages for group in page.get("CommonPrefixes", [])]
    assert groups == sorted(set(groups)) and "many/" in groups and "workflow/" in groups, (name, groups)

# Unusual keys and bodies of every size, with their metadata.
for key in ["tool/naïve/日本/🦀", "tool/with space/+plus&and=is", "tool/per%20cent/%2e", "tool/a'b\"c<d>", "tool/~!*()"]:
    s3.put_object(Bucket=BUCKET, Key=key, Body=key.encode())
    assert body(key) == key.encode(), key
    assert [entry["Key"] for entry in s3.list_objects_v2(Bucket=BUCKET, Prefix=key)["Contents"]] == [key]
for size in [0, 1, 70_000, 9_000_000]:
    data = bytes(place * 31 % 251 for place in range(size))
    s3.put_object(Bucket=BUCKET, Key="tool/size", Body=io.BytesIO(data))
    assert body("tool/size") == data, size
for algorithm in ["CRC32", "SHA256"]:
    s3.put_object(Bucket=BUCKET, Key="tool/sum", Body=b"sum", ChecksumAlgorithm=algorithm)
refused("BadDigest", s3.put_object, Key="tool/sum", Body=b"sum", ChecksumCRC32="AAAAAA==")
md5 = base64.b64encode(hashlib.md5(b"other").digest()).decode()
refused("BadDigest", s3.put_object, Key="tool/sum", Body=b"sum", ContentMD5=md5)

# Put if absent, twice; put at a version, twice.
first = s3.put_object(Bucket=BUCKET, Key="tool/once", Body=b"first", IfNoneMatch="*")
refused("PreconditionFailed", s3.put_object, Key="tool/once", Body=b"second", IfNoneMatch="*")
s3.put_object(Bucket=BUCKET, Key="tool/once", Body=b"0123456789", IfMatch=first["ETag"])
refused("PreconditionFailed", s3.put_object, Key="tool/once", Body=b"third", IfMatch=first["ETag"])

# Parts of it.
assert body("tool/once", Range="bytes=2-4") == b"234"
assert body("tool/once", Range="bytes=-3") == b"789"
refused("InvalidRange", s3.get_object, Key="tool/once", Range="bytes=10-")

# Missing objects are errors.
refused("NotImplemented", s3.copy_object, Key="tool/copy", CopySource=f"{BUCKET}/tool/once")
refused("NotImplemented", s3.create_multipart_upload, Key="tool/parts")
refused("NotImplemented", s3.get_object_acl, Key="tool/once")

# Presigned URLs, valid and expired.
params = {"Bucket": BUCKET, "Key": "tool/once"}
url = client(signature_version="s3v4").generate_presigned_url("get_object", Params=params, ExpiresIn=60)
assert fetch(url) == b"0123456789"
url = client(signature_version="s3v4").generate_presigned_url("get_object", Params=params, ExpiresIn=1)
while True:
    try:
        fetch(url)
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        assert error.code == 403 and "<Code>AccessDenied</Code>" in text and "expired" in text, text
        break

# A client with a wrong secret.
stranger = client("a secret of somebody else, as long")
refused("SignatureDoesNotMatch", stranger.get_object, Key=ENTRY)
refused("SignatureDoesNotMatch", stranger.put_object, Key="tool/theirs", Body=b"x")
refused("NoSuchKey", s3.get_object, Key="tool/theirs")

# Deleted one by one and many at once.
s3.delete_object(Bucket=BUCKET, Key="tool/once")
refused("NoSuchKey", s3.get_object, Key="tool/once")
left = [entry["Key"] for entry in s3.list_objects_v2(Bucket=BUCKET, Prefix="tool/")["Contents"]]
gone = s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": key} for key in left]})
assert sorted(entry["Key"] for entry in gone["Deleted"]) == left, gone
assert s3.list_objects_v2(Bucket=BUCKET, Prefix="tool/")["KeyCount"] == 0
