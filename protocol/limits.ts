/**
 * Bounds of the wire. What is larger is refused with the name of the field; nobody can make the other side hold more.
 */

/** One gRPC message, either way. */
export const MAX_MESSAGE_BYTES = 4 * 1024 * 1024
/** One message to the broker: the largest are a digest of 2,000 entries and a record. */
export const MAX_REQUEST_BYTES = 2 * 1024 * 1024
/** RFC 1123 subdomain, as Kubernetes names are. */
export const MAX_NAME = 253
/** Any text without a tighter limit. */
export const MAX_TEXT = 1024
export const MAX_PORTS = 100
/** Kubernetes' own limit for one EndpointSlice. */
export const MAX_ENDPOINTS_PER_SLICE = 1000
/** Kubernetes' own limit for one endpoint. */
export const MAX_ADDRESSES_PER_ENDPOINT = 100
export const MAX_LABELS = 100
/** Prefix of 253, slash, name of 63. */
export const MAX_LABEL_KEY = 317
export const MAX_LABEL_VALUE = 63
export const MAX_ANNOTATION_VALUE = 4096
export const MAX_CIDRS = 16
/** What a joining cluster learns about its addresses. */
export const MAX_NOTES = 8
/** Members that the answer to a join names. */
export const MAX_RENUMBERED = 1000
export const MAX_CANDIDATES = 16
export const MAX_CAPABILITIES = 32
export const MAX_FAMILIES = 2
export const MAX_IPS = 2
/** Requests that may come without a client certificate, and other short ones. */
export const MAX_JOIN_BYTES = 64 * 1024
export const MAX_CSR_BYTES = 16 * 1024
export const MAX_CERTIFICATE_BYTES = 64 * 1024
export const MAX_CA_BUNDLE = 8
export const MAX_SECRET = 256
/** One record, encoded. A full EndpointSlice of 1,000 endpoints has about a third of this. */
export const MAX_RECORD_BYTES = 512 * 1024
/** What a member reports about itself, encoded. */
export const MAX_STATUS_BYTES = 64 * 1024
/** Entries of one digest part, keys of one `need`. A larger set comes in several parts. */
export const MAX_DIGEST_ENTRIES = 10_000
export const MAX_NEED_KEYS = 100_000
/** Events of one watch batch. */
export const MAX_BATCH_EVENTS = 10_000
export const MAX_EVENT_BYTES = 1024 * 1024
/** Records of one part of what a member holds. */
export const MAX_HELD_RECORDS = 2000
/** Members of one clusterset. */
export const MAX_CLUSTERS = 10_000
export const MAX_SAVED_RECORDS = 2_000_000
export const HASH_BYTES = 32
/** A request for a watch: an interest of 10,000 namespaces. */
export const MAX_WATCH_REQUEST_BYTES = 768 * 1024
/** Names of one message about namespaces in which something is exported, and of all that a member keeps. */
export const MAX_EXPORTED_PART = 10_000
export const MAX_EXPORTED_NAMESPACES = 100_000
