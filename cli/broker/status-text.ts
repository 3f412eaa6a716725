/** Formats the status of a broker for people. Pure. */
import type { BrokerStatus, StatusProblem } from '../../protocol/admin/admin.ts'
import { renderTable } from '../context/context.ts'

/** The pods of one part, as the cluster reports them. */
export interface PartPods {
  readonly wanted: number
  readonly ready: number
  /** The reasons why pods are not ready. */
  readonly troubles: readonly string[]
}

export interface ShownStatus extends Pick<BrokerStatus, 'health' | 'problems'> {
  /** Undefined if no broker could be asked. */
  readonly broker?: BrokerStatus
  readonly pods?: { readonly broker: PartPods; readonly etcd?: PartPods }
}

const MARKS = { down: 'DOWN', degraded: 'DEGRADED', healthy: 'NOTE' } as const

export function statusText({ health, problems, broker, pods }: ShownStatus): string {
  const lines: (readonly [string, string])[] = [
    ['broker', health],
    ...(broker === undefined ? [] : linesOf(broker)),
    ...(pods === undefined ? [] : [['pods', partsText(pods)] as const]),
  ]
  const width = Math.max(...lines.map(([name]) => name.length)) + 2
  const head = lines.map(([name, text]) => `${name.padEnd(width)}${text}\n`).join('')
  const { replicas = [], storeMembers = [] } = broker ?? {}
  const tables = [
    replicas.length === 0
      ? ''
      : renderTable(
          [
            { title: 'REPLICA', cell: ({ host, id }) => host ?? id },
            { title: 'VERSION', cell: ({ version }) => version ?? '-' },
            { title: 'MEMBERS', cell: ({ members }) => (members === undefined ? '-' : String(members)) },
          ],
          replicas,
        ),
    storeMembers.length === 0
      ? ''
      : renderTable(
          [
            { title: 'ETCD', cell: ({ endpoint }) => endpoint },
            { title: 'VERSION', cell: ({ version }) => version ?? '-' },
            { title: 'MIB', cell: ({ bytes }) => (bytes === undefined ? '-' : (bytes / 2 ** 20).toFixed(1)) },
            { title: 'STATE', cell: stateOf },
          ],
          storeMembers,
        ),
  ].filter((table) => table !== '')
  return [head, ...tables, problems.map(problemText).join('')].filter((part) => part !== '').join('\n')
}

function linesOf({ log, kind, where }: BrokerStatus): readonly (readonly [string, string])[] {
  const store = ['store', `${kind} ${where}`] as const
  if ('why' in log) return [store]
  const { clusterset, epoch, revision, records, members, authority } = log
  const inContact = members.filter(({ state }) => state === 'in contact').length
  return [
    ['clusterset', clusterset],
    store,
    ['revision', `${revision} of epoch ${epoch}`],
    ['members', `${members.length}, in contact ${inContact}; records ${records}`],
    ['authority', `${authority.phase}, until ${authority.until ?? 'a time that is not known yet'}`],
  ]
}

function partsText({ broker, etcd }: NonNullable<ShownStatus['pods']>): string {
  const of = ({ ready, wanted }: PartPods): string => `${ready} of ${wanted} ready`
  return `broker ${of(broker)}${etcd === undefined ? '' : `, etcd ${of(etcd)}`}`
}

function stateOf(member: BrokerStatus['storeMembers'][number]): string {
  const { why, hasLeader, alarms = [] } = member
  if (why !== undefined) return 'no answer'
  if (alarms.length > 0) return alarms.join(', ')
  return hasLeader === true ? 'ok' : 'no leader'
}

function problemText({ health, text }: StatusProblem): string {
  return `${MARKS[health]}  ${text}\n`
}
