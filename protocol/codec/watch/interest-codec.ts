/** What a member asks for, and where there is something to ask for, between bytes and broker-api.ts. */
import { MAX_INTEREST, interestProblem } from '../../../model/services/interest.ts'
import type { AskedInterest, WatchMessage } from '../../broker-api.ts'
import type { Interest as WireInterest, WatchMessage_ExportedNamespaces as WireExported } from '../../gen/broker.ts'
import { MAX_EXPORTED_PART, MAX_NAME } from '../../limits.ts'
import * as check from '../codec-checks.ts'
import { CodecError } from '../codec-checks.ts'

type Exported = Extract<WatchMessage, { t: 'exportedNamespaces' }>

export function interestToWire({ namespaces, missing }: AskedInterest): WireInterest {
  const sorted = [...namespaces].sort()
  return { namespaces: sorted, missing: sorted.flatMap((name, i) => (missing.has(name) ? [i] : [])) }
}

/** Throws CodecError. The order is asked for so that the same interest always has the same bytes. */
export function interestFromWire({ namespaces, missing }: WireInterest): AskedInterest {
  const names = check.list(namespaces, 'interest.namespaces', MAX_INTEREST, (name, path) => {
    return check.text(name, path, MAX_NAME, 1)
  })
  const asked = new Set(ascending(names, 'interest.namespaces'))
  const problem = interestProblem(asked)
  if (problem !== undefined) throw new CodecError('interest.namespaces', problem)
  const positions = check.list(missing, 'interest.missing', names.length, (at) => at)
  const lacking = ascending(positions, 'interest.missing').map((at, i) => {
    const name = names[at]
    if (name === undefined) throw new CodecError(`interest.missing[${i}]`, `${at}: expected less than ${names.length}`)
    return name
  })
  return { namespaces: asked, missing: new Set(lacking) }
}

export function exportedToWire({ whole, added, removed }: Exported): WireExported {
  return { whole, added: [...added], removed: [...removed] }
}

export function exportedFromWire({ whole, added, removed }: WireExported): Exported {
  const names = (list: string[], field: string): string[] => check.texts(list, field, MAX_EXPORTED_PART, MAX_NAME)
  return { t: 'exportedNamespaces', whole, added: names(added, 'added'), removed: names(removed, 'removed') }
}

function ascending<T extends string | number>(list: readonly T[], field: string): readonly T[] {
  const wrong = list.findIndex((one, i) => i > 0 && one <= (list[i - 1] as T))
  if (wrong >= 0) throw new CodecError(`${field}[${wrong}]`, 'expected ascending order, each once')
  return list
}
