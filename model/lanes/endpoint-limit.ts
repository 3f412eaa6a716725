/**
 * How many Endpoints one member may have: eight lanes, and what is left for a while of gateways that handed theirs over.
 * Each of another member's costs a look at every round of every gateway. The broker refuses more, and importers leave
 * out more.
 */
export const MAX_ENDPOINTS_PER_CLUSTER = 64
