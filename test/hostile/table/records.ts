/** Records that a member publishes. */
import type { AttackRow } from './row.ts'

export const RECORDS: readonly AttackRow[] = [
  {
    id: 'namespaces-guarded',
    tried: 'A member exports into `default`, `kube-system`, an `openshift-` namespace, and those of Sealane itself.',
    holds:
      'The broker refuses exports and slices, and says by which flag an operator allows the namespace. Others are free.',
    against: '`guardedNamespace()` in `model/ids.ts`, asked by `broker/admission/admission.ts`.',
  },
  {
    id: 'namespaces-into-importer',
    tried: 'The broker hands such exports on all the same.',
    holds: 'A cluster imports them only where its own site file allows the namespace, and tells what it leaves out.',
    against: '`agent/import/check-record.ts`: the importer asks again, and by its own list.',
  },
  {
    id: 'records-of-others',
    tried:
      "A member publishes another one's gateway, addresses of another one's pods, and records that only the broker makes.",
    holds: 'All are refused, and what the other one published stays as it is.',
    against:
      '`broker/admission/admission.ts`: whose a record is says the certificate, and addresses lie inside its pod ranges.',
  },
  {
    id: 'service-range-over-pods',
    tried: "A member states Service addresses over another one's pods, at its join and by changing what it states.",
    holds:
      'The other one keeps its addresses and is not translated; the two do not reach each other, and that is told.',
    against: '`broker/addresses/claim-order.ts`: who stated a range later gives way.',
  },
  {
    id: 'service-range-drops-itself',
    tried: 'The broker hands on a member whose Service addresses are those of pods here.',
    holds: 'That member alone is used no more, and the reason is told.',
    against: '`clusterProblem()` in `agent/import/check-record.ts`.',
  },
]
