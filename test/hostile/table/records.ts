/** Attacks with the records that a member publishes. */
import type { AttackRow } from './row.ts'

export const RECORDS: readonly AttackRow[] = [
  {
    id: 'namespaces-guarded',
    tried: 'A member exports into `default`, `kube-system`, an `openshift-` namespace, and those of Sealane.',
    holds:
      'The broker refuses exports and slices, and says by which flag an operator allows the namespace. Others are free.',
    against: '`guardedNamespace()` in `model/ids.ts`, asked by `broker/records/admission.ts`.',
  },
  {
    id: 'namespaces-spelled',
    tried: 'A member spells a guarded namespace in capitals, with dots, spaces, NUL, escapes or look-alike letters.',
    holds: 'Each is refused, and nothing of it is stored.',
    against:
      '`KEY_FORMS` in `model/grammar/record-forms.ts`: a namespace is an RFC 1123 label, and is compared as it is.',
  },
  {
    id: 'namespaces-into-importer',
    tried: 'The broker passes such exports on all the same.',
    holds: 'A cluster imports them only where its own site file allows the namespace, and reports what it leaves out.',
    against: '`agent/import/check-record.ts`: the importer asks again, and by its own list.',
  },
  {
    id: 'records-of-others',
    tried: "A member publishes another's gateway and pod addresses, and records only the broker makes.",
    holds: 'All are refused, and what the other one published stays as it is.',
    against:
      '`broker/records/admission.ts`: the certificate says who owns a record, and addresses must lie inside the owner’s pod ranges.',
  },
  {
    id: 'gateways-without-end',
    tried: 'A member publishes two hundred Endpoints, each with a name and a key of its own.',
    holds:
      'The broker takes 64 and refuses the others. Those that are there may change, and the rest of the member goes on.',
    against: '`checkEndpoints()` in `broker/records/record-writes.ts`: eight lanes, and room for gateways of before.',
  },
  {
    id: 'service-range-over-pods',
    tried: "A member states Service addresses over another's pods, at its join and later.",
    holds:
      'The other one keeps its addresses and is not translated; the two do not reach each other, and both report it.',
    against:
      '`broker/addresses/stated-ranges.ts`: the member that stated a range later is the one whose range does not count.',
  },
  {
    id: 'service-range-drops-itself',
    tried: 'The broker passes on a member whose Service addresses are those of pods here.',
    holds: 'Only that member is not used any more, and the reason is logged.',
    against: '`clusterProblem()` in `agent/import/check-record.ts`.',
  },
]
