/** Specs that cannot pass where clusters have the same addresses. docs/limits.md tells users the same. */
export interface Excuse {
  /** The number of the suite's case in docs/mcs.md. */
  readonly id: string
  /** The spec, as the suite's report describes it. */
  readonly spec: string
  readonly reason: string
}

export const UNDER_TRANSLATION: readonly Excuse[] = [
  {
    id: 'T25',
    spec:
      'A DNS query of the <service>.<ns>.svc.clusterset.local domain for a headless service should return the ready ' +
      'endpoint addresses of all the backing pods',
    reason:
      "it asks the importing cluster for the very addresses of the exporting cluster's own slices; pods of both clusters " +
      'have the same ones, so another cluster must give global ones',
  },
]
