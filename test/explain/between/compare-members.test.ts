/**
 * Problems that only both ends together show: the direction in which packets are lost, and what one member has wrong
 * about the other.
 */
import t from 'tap'
import { compareMembers } from '../../../explain/compare-members.ts'
import type { ObjectsByKind } from '../../support/objects/member-facts.ts'
import { twoMembers } from '../../support/objects/two-members.ts'
import { type Loose, changeLinks, linesOf } from '../broken-member.ts'

type Both = { readonly milano: ObjectsByKind; readonly paris: ObjectsByKind }

const of = (objects: ObjectsByKind) => (kind: keyof ObjectsByKind) => (objects[kind] ?? []) as Loose[]

const HEARS = { state: 'down', message: 'packets arrive from it', cause: 'AnswersLost' }
const ANSWERS_NOTHING = { state: 'down', message: 'packets arrive from it', cause: 'NoneAnswers' }
const SILENCE = {
  state: 'down',
  message: 'this gateway sends to UDP 192.0.2.1:4500 and receives nothing: open UDP 4500 at the other gateway',
}

const links = (objects: ObjectsByKind, change: object, only?: string): void =>
  changeLinks(of(objects), (_, node) => only === undefined || node === only, change)

t.test('two healthy members, whichever comes first', async (t) => {
  const [a, b] = twoMembers()
  for (const sets of [[a, b], [b, a], [a], []]) {
    const { health, members, between } = compareMembers(sets)
    t.same([health, linesOf(between), members.length], ['healthy', [], sets.length])
  }
})

t.test('faults between two members', async (t) => {
  const rows: readonly (readonly [
    name: string,
    change: (both: Both) => void,
    lines: readonly string[],
    seen?: RegExp,
  ])[] = [
    [
      'what paris sends arrives, what milano sends does not',
      ({ milano, paris }) => {
        links(milano, HEARS)
        links(paris, SILENCE)
      },
      ['down UdpOneWay Link milano and paris'],
      /^packets from milano do not arrive at paris, but those in the other direction do; paris reports: this gateway sends to/,
    ],
    [
      'the other way round',
      ({ milano, paris }) => {
        links(milano, SILENCE)
        links(paris, ANSWERS_NOTHING)
      },
      ['down UdpOneWay Link milano and paris'],
      /^packets from paris do not arrive at milano,/,
    ],
    [
      'nothing passes',
      ({ milano, paris }) => {
        links(milano, SILENCE)
        links(paris, SILENCE)
      },
      ['down NeitherEndHears Link milano and paris'],
      /\(gw0 lane 0 to lane 0, gw0 lane 0 to lane 1, gw1 lane 1 to lane 0, gw1 lane 1 to lane 1\)$/,
    ],
    [
      'one of two gateways',
      ({ milano, paris }) => {
        links(milano, SILENCE, 'gw1')
        changeLinks(of(paris), ({ remoteLane }) => remoteLane === 1, SILENCE)
      },
      ['down NeitherEndHears Link milano and paris'],
      /\(gw1 lane 1 to lane 0, gw1 lane 1 to lane 1\)$/,
    ],
    [
      'one says up, the other down, and both hear',
      ({ paris }) => links(paris, HEARS),
      ['degraded LinkEndsDiffer Link milano and paris'],
      /^milano reports up, but paris reports down/,
    ],
    [
      'the other has no link',
      ({ paris }) => of(paris)('Gateway').forEach(({ status }) => (status.connections = [])),
      ['degraded LinkEndsDiffer Link milano and paris'],
      /^paris has no such link to milano/,
    ],
    [
      'ranges that have changed',
      ({ milano }) => {
        for (const { metadata, spec } of of(milano)('Cluster'))
          if (metadata.name === 'paris') Object.assign(spec, { podCIDRs: ['10.77.0.0/16'], globalCIDRs: [] })
      },
      ['degraded RecordsDiffer Cluster paris in milano'],
      /^podCIDRs are 10\.77\.0\.0\/16 in milano and /,
    ],
    [
      'a gateway that is no more',
      ({ paris }) => {
        paris.Endpoint = of(paris)('Endpoint').filter(({ spec }) => spec['cluster'] !== 'paris' || spec['lane'] !== 1)
      },
      ['degraded RecordsDiffer Endpoint paris in milano'],
      /^gateways: outdated: gw1 on lane 1 at /,
    ],
    [
      'a member that is not known',
      ({ milano }) => {
        milano.Cluster = of(milano)('Cluster').filter(({ metadata }) => metadata.name !== 'paris')
      },
      ['degraded MemberMissing Cluster paris in milano'],
    ],
    [
      'a member with which the topology does not link',
      ({ milano, paris }) => {
        milano.Cluster = of(milano)('Cluster').filter(({ metadata }) => metadata.name !== 'paris')
        for (const { metadata } of of(milano)('Cluster'))
          Object.assign(metadata, { annotations: { 'sealane.io/known-members': 'milano,paris:NotLinkedByTopology' } })
        of(milano)('Gateway').forEach(({ status }) => (status.connections = []))
        // Paris learns of it a moment later.
        links(paris, SILENCE)
      },
      [],
    ],
    [
      'a service that is not imported',
      ({ paris }) => {
        paris.ServiceImport = []
      },
      ['notice ImportsMissing ServiceImport milano in paris'],
      /^1 services that milano exports are missing in paris: [a-z]+\/web0$/,
    ],
    [
      'two releases',
      ({ paris }) => of(paris)('Gateway').forEach(({ status }) => (status['version'] = '0.2.0')),
      ['notice VersionSkew Clusterset demo'],
      /0\.1\.0: milano, paris; 0\.2\.0: paris/,
    ],
    [
      'another clusterset',
      ({ paris }) => of(paris)('Membership').forEach(({ spec }) => (spec['clusterset'] = 'blue')),
      ['notice ClustersetsDiffer Cluster milano and paris'],
    ],
  ]
  for (const [name, change, lines, seen] of rows) {
    const [a, b] = twoMembers(change)
    const { between } = compareMembers([a, b])
    t.same(linesOf(between), lines, name)
    t.same(compareMembers([b, a]).between, between, `${name}: the other way round`)
    if (seen !== undefined) t.match(between[0]?.seen, seen, name)
  }
})

t.test('one member twice, one that has not joined, and what is no facts', async (t) => {
  const [a, b] = twoMembers()
  t.same(linesOf(compareMembers([a, a]).between), ['notice MemberTwice Cluster milano and milano'])
  const alone = { ...b, facts: b.facts.filter((fact) => fact.t !== 'objects' || fact.kind !== 'Membership') }
  t.same(linesOf(compareMembers([a, alone]).between), [])
  const { health, members } = compareMembers([a, null, { facts: 7 }, []])
  t.equal(members.length, 4)
  t.not(health, 'healthy')
})
