/**
 * Limits of the protocol; those of the fields of records are in model/values/limits.ts and model/grammar, with their
 * sources. All limits here are ours, and each comment says what it is made for. A larger value is refused with the name
 * of its field, so no peer can exhaust the memory of another.
 */
import { MOST_MEMBERS } from '../model/addresses/addresses.ts'

/** One gRPC message in either direction: the default of gRPC for received messages. */
export const MAX_MESSAGE_BYTES = 4 * 1024 * 1024
/** One message to the broker. The largest are a digest of 2,000 entries and a record. */
export const MAX_REQUEST_BYTES = 2 * 1024 * 1024
/** Any text without a stricter limit. No field of a record has a text without one. */
export const MAX_TEXT = 1024
/** Notes about its addresses that a joining cluster receives. */
export const MAX_NOTES = 8
/** Renumbered members that one join response lists. */
export const MAX_RENUMBERED = 1000
/** Join requests, which need no client certificate, and other short requests. */
export const MAX_JOIN_BYTES = 64 * 1024
/** A PEM request with an RSA key of 4,096 bits takes 2 KiB, a chain of certificates 10 KiB. */
export const MAX_CSR_BYTES = 16 * 1024
export const MAX_CERTIFICATE_BYTES = 64 * 1024
/** Certificates of authorities: two during a rotation. */
export const MAX_CA_BUNDLE = 8
/** The secret of a join token has 43 characters. */
export const MAX_SECRET = 256
/**
 * One encoded record, whatever its counts: a third of what etcd takes in one request (1.5 MiB), because the same record
 * as JSON is up to three times as large. An EndpointSlice of 1,000 endpoints takes about a third of this, the longest
 * list of ports (MAX_SERVICE_PORTS) with names of up to eight characters all of it. An export that does not fit says so
 * in its condition Valid.
 */
export const MAX_RECORD_BYTES = 512 * 1024
/** One encoded member status, whose lists have limits of their own (model/member-status.ts). */
export const MAX_STATUS_BYTES = 64 * 1024
/** Entries of one `digest` part and keys of one `need`. Larger sets are split. */
export const MAX_DIGEST_ENTRIES = 10_000
export const MAX_NEED_KEYS = 100_000
/** Events of one `batch`. */
export const MAX_BATCH_EVENTS = 10_000
/** One event: twice a record, since a record of the broker's own may be larger than a member's. */
export const MAX_EVENT_BYTES = 1024 * 1024
/** Records of one `held` part. */
export const MAX_HELD_RECORDS = 2000
/** Members of one clusterset, and departed ones in a list. */
export const MAX_CLUSTERS = MOST_MEMBERS
/** Owners of records: the members and the broker. */
export const MAX_OWNERS = MAX_CLUSTERS + 1
/** Records in the replica file of a member: more than 255 members with a quota of 50,000 have in practice. */
export const MAX_SAVED_RECORDS = 2_000_000
/** SHA-256. */
export const HASH_BYTES = 32
/** One watch request: an interest of 10,000 namespaces. */
export const MAX_WATCH_REQUEST_BYTES = 768 * 1024
/** Names in one `exportedNamespaces` message, and names that a member stores in total. */
export const MAX_EXPORTED_PART = 10_000
export const MAX_EXPORTED_NAMESPACES = 100_000
