/** The name and the lifetimes in the certificates of a clusterset. */
export const SERVER_NAME = 'broker.sealane.internal'
export const MEMBER_VALIDITY_MS = 24 * 3600_000
export const CA_VALIDITY_MS = 10 * 365 * 24 * 3600_000
export const SERVER_VALIDITY_MS = 90 * 24 * 3600_000
/** Certificates begin a little in the past: clocks differ. */
export const BACKDATE_MS = 5 * 60_000
/**
 * Before the serial of the certificate that was shown for a new one; not a URI of ours, which earlier releases would
 * count.
 */
export const RENEWS = 'urn:sealane:renews:'
