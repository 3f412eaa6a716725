/** What the agent reports about the broker, and kinds of objects that could not be read. */
import t from 'tap'
import { diagnoseMember } from '../../explain/diagnose-member.ts'
import type { BrokerReport } from '../../explain/facts/shapes.ts'
import {
  HEALTHY_BROKER,
  NOW,
  reportFact,
  condition,
  factSet,
  healthyObjects,
  healthyReports,
} from '../support/objects/member-facts.ts'
import { brokenMember, linesOf } from './broken-member.ts'

const AWAY: BrokerReport = {
  ...HEALTHY_BROKER,
  publish: 'waiting',
  watch: 'waiting',
  since: '2026-11-25T11:30:00Z',
  reason: 'BrokerSilent',
}

/** From the agent's report about the broker to the expected findings. */
const BROKERS: Readonly<Record<string, readonly [report: Partial<BrokerReport>, lines: readonly string[]]>> = {
  'the broker is down': [AWAY, ['degraded BrokerUnreached Broker - (Pending ×2)']],
  'it has put this member out': [{ ...AWAY, reason: 'MemberEvicted' }, ['down MemberEvicted Broker - (Pending ×2)']],
  'it has put this member out, whose certificate is about to end': [
    { ...AWAY, reason: 'MemberEvicted', certificateEnds: '2026-11-25T13:00:00Z' },
    ['down MemberEvicted Broker - (Pending ×2, CertificateEndsSoon ×1)'],
  ],
  'it has just gone': [{ ...AWAY, since: '2026-11-25T11:59:50Z' }, ['degraded BrokerUnreached Broker - (Pending ×2)']],
  'one replica is dead': [
    { failing: 1 },
    [
      'degraded Pending ServiceExport shop/web0',
      'degraded Pending ServiceExport shop/web1',
      'notice BrokerAddressFailing Broker -',
    ],
  ],
  'the certificate is about to end': [
    { ...AWAY, certificateEnds: '2026-11-25T13:00:00Z' },
    ['degraded BrokerUnreached Broker - (Pending ×2, CertificateEndsSoon ×1)'],
  ],
  'the certificate has ended': [
    { certificateEnds: '2026-11-25T11:00:00Z' },
    [
      'degraded CertificateExpired Cluster milano',
      'degraded Pending ServiceExport shop/web0',
      'degraded Pending ServiceExport shop/web1',
    ],
  ],
}

for (const [name, [report, lines]] of Object.entries(BROKERS)) {
  t.test(`${name}: exports that wait are counted under it`, async (t) => {
    const objects = brokenMember(
      (at) => {
        for (const one of at('ServiceExport'))
          one.status.conditions = [condition('Ready', 'False', 'Pending', 'not confirmed')]
      },
      { services: 2 },
    )
    const { problems } = diagnoseMember(factSet(objects, healthyReports({ ...HEALTHY_BROKER, ...report })))
    t.same(linesOf(problems), lines)
  })
}

t.test('a broker that is away is said with the reason of the agent, and what to do about that', async (t) => {
  const { problems, overview } = diagnoseMember(factSet(healthyObjects(), healthyReports(AWAY)))
  t.match(problems, [
    {
      reason: 'BrokerUnreached',
      seen: /^publishing is waiting, watching is waiting: last heard .*Z, 3 addresses known\. BrokerSilent: No address of the broker answers from here/,
      since: '2026-11-25T11:30:00Z',
      mend: 'Check that the broker runs, and that TCP to its port passes from here.',
      source: 'pod sealane-agent-0',
    },
  ])
  t.match(overview.broker, { state: 'away', addresses: 3 })
})

t.test('an agent of an earlier release that says NoConnection means the broker, not an API server', async (t) => {
  const { problems } = diagnoseMember(factSet(healthyObjects(), healthyReports({ ...AWAY, reason: 'NoConnection' })))
  t.match(problems, [{ reason: 'BrokerUnreached', seen: /BrokerSilent: No address of the broker answers from here/ }])
  for (const { seen, mend } of problems) t.notMatch(`${seen} ${mend}`, /API server/)
})

t.test('what could not be asked is a problem of its own', async (t) => {
  const { Gateway: _gone, ...objects } = healthyObjects()
  const { health, problems } = diagnoseMember(
    factSet(objects, [
      ...healthyReports(),
      {
        t: 'unanswered',
        what: 'Gateway',
        reason: 'RightMissing',
        message: 'may not list gateways',
        needed: true,
        source: 'API server',
        at: '2026-11-25T12:00:00Z',
      },
      {
        t: 'unanswered',
        what: 'Pod sealane-dns-1',
        reason: 'NotAnswered',
        message: 'no answer within 700ms',
        needed: false,
        source: 'API server',
        at: '2026-11-25T12:00:00Z',
      },
    ]),
  )
  t.same(linesOf(problems), ['degraded RightMissing Gateway *', 'notice NotAnswered Pod sealane-dns-1'])
  t.equal(health, 'degraded', 'nobody knows whether a lane is up')
})

t.test('where no part tells its time, a clock of the command that is ahead makes no routeagent silent', async (t) => {
  const objects = brokenMember(
    (at) => {
      for (const { metadata, status } of at('RouteAgent'))
        status['heartbeatTime'] = metadata.name === 'w1' ? '2020-01-01T00:00:00Z' : NOW
    },
    { workers: 2 },
  )
  const facts = factSet(objects, [])
  const late = new Date(Date.parse(NOW) + 3_600_000).toISOString()
  const { problems } = diagnoseMember({
    ...facts,
    takenAt: late,
    facts: facts.facts.map((fact) => ({ ...fact, at: late })),
  })
  t.same(
    linesOf(problems).filter((line) => line.includes('RouteAgentSilent')),
    ['degraded RouteAgentSilent RouteAgent w1'],
    'one that is older than what the others wrote is',
  )
})

t.test('a clock of the command that is wrong is told, and makes nothing old', async (t) => {
  const objects = healthyObjects()
  for (const [hours, how] of [
    [1, 'ahead of'],
    [-1, 'behind'],
  ] as const) {
    const taken = new Date(Date.parse(NOW) + hours * 3_600_000).toISOString()
    const facts = factSet(objects, [
      reportFact('agent', 'sealane-agent-0', { broker: HEALTHY_BROKER, now: NOW }),
      reportFact('dns', 'sealane-dns-0', { now: NOW }),
      reportFact('dns', 'sealane-dns-1', { now: '1970-01-01T00:00:00Z' }),
    ])
    const late = facts.facts.map((fact) => ({ ...fact, at: taken }))
    const { health, problems } = diagnoseMember({ ...facts, takenAt: taken, facts: late })
    t.same(linesOf(problems), ['notice CommandClockDiffers Cluster milano'])
    t.match(problems[0]?.seen, `the clock here is 1h0m ${how} that of the cluster's parts`)
    t.equal(health, 'healthy')
  }
})
