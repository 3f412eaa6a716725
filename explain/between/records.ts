/** Whether one member knows of another what that one says of itself. What it has is as old as its last word from the broker. */
import { CONDITION_READY, findCondition } from '../../model/conditions.ts'
import type { Finding } from '../finding.ts'
import { type World, absentAt, named, seenAt } from '../world.ts'

const RANGES = ['podCIDRs', 'serviceCIDRs', 'globalCIDRs'] as const

/** What `reader` has of `owner`. */
export function records(reader: World, owner: World): readonly Finding[] {
  if (reader.self === undefined || owner.self === undefined) return []
  const known = reader.objects.Cluster?.find(({ object }) => object.spec.id === owner.self)
  if (reader.objects.Cluster !== undefined && known === undefined) {
    const seen = `${reader.self} has no Cluster of ${owner.self}`
    return [
      { reason: 'MemberMissing', severity: 'degraded', subject: pairOf(reader, owner), seen, ...absentAt(reader) },
    ]
  }
  return [...ranges(reader, owner), ...gateways(reader, owner), ...services(reader, owner)]
}

function pairOf(reader: World, owner: World): Finding['subject'] {
  return { kind: 'Cluster', name: `${owner.self ?? '-'} as ${reader.self ?? '-'} has it` }
}

function ranges(reader: World, owner: World): readonly Finding[] {
  const [theirs, own] = [reader, owner].map(({ objects }) =>
    objects.Cluster?.find(({ object }) => object.spec.id === owner.self),
  )
  if (theirs === undefined || own === undefined) return []
  const differing = RANGES.flatMap((field) => {
    const [known, said] = [theirs, own].map(({ object: { spec } }) => [...spec[field]].sort().join(', '))
    return known === said
      ? []
      : [`${field} are ${known === '' ? 'none' : (known ?? '')} here and ${said === '' ? 'none' : (said ?? '')} there`]
  })
  if (differing.length === 0) return []
  const seen = differing.join('; ')
  return [{ reason: 'RecordsDiffer', severity: 'degraded', subject: pairOf(reader, owner), seen, ...seenAt(theirs) }]
}

/** Keys are left out: in bundles they are numbers. */
function gateways(reader: World, owner: World): readonly Finding[] {
  const [theirs, own] = [reader, owner].map(({ objects }) =>
    objects.Endpoint?.filter(({ object }) => object.spec.cluster === owner.self),
  )
  if (theirs === undefined || own === undefined) return []
  const textOf = ({ object: { spec } }: (typeof own)[number]): string => {
    const places = spec.candidates.map(({ address, port }) => `${address} port ${port}`).sort()
    return `${spec.node} on lane ${spec.lane} at ${places.join(', ') || 'no address'}`
  }
  const [known, said] = [new Set(theirs.map(textOf)), new Set(own.map(textOf))]
  const missing = [...said].filter((one) => !known.has(one))
  const old = [...known].filter((one) => !said.has(one))
  if (missing.length + old.length === 0) return []
  const texts = [
    ...(missing.length === 0 ? [] : [`not known there: ${named(missing)}`]),
    ...(old.length === 0 ? [] : [`no more: ${named(old)}`]),
  ]
  const subject = { kind: 'Endpoint', name: pairOf(reader, owner).name }
  const at = theirs[0] === undefined ? absentAt(reader) : seenAt(theirs[0])
  return [{ reason: 'RecordsDiffer', severity: 'degraded', subject, seen: `gateways: ${texts.join('; ')}`, ...at }]
}

/** Namespaces of the other are no facts: whether it should be there, nobody can say. */
function services(reader: World, owner: World): readonly Finding[] {
  const imports = reader.objects.ServiceImport
  if (imports === undefined) return []
  const nameOf = ({ namespace = '', name }: { readonly namespace?: string; readonly name: string }): string =>
    `${namespace}/${name}`
  const there = new Set(imports.map(({ object }) => nameOf(object.metadata)))
  const missing = (owner.objects.ServiceExport ?? [])
    .filter(({ object }) => findCondition(object.status?.conditions, CONDITION_READY)?.status === 'True')
    .map(({ object }) => nameOf(object.metadata))
    .filter((name) => !there.has(name))
  if (missing.length === 0) return []
  const seen = `${missing.length} services that ${owner.self ?? '-'} exports are not in ${reader.self ?? '-'}: ${named(missing)}`
  const subject = { kind: 'ServiceImport', name: pairOf(reader, owner).name }
  return [{ reason: 'ImportsMissing', severity: 'notice', subject, seen, ...absentAt(reader) }]
}
