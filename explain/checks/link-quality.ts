/** How well the links carry that are up. */
import { remoteLaneOf } from '../../model/lanes/lane-number.ts'
import type { Finding } from '../finding.ts'
import { type Link, type World, seenAt } from '../world.ts'

const LOSSY = 0.1
const HELD = 'it went down again and again, and is held out of use'

export function linkQuality({ links }: World): readonly Finding[] {
  return links.filter(({ connection }) => connection.state === 'up').flatMap(qualityOf)
}

function qualityOf(link: Link): readonly Finding[] {
  const { node, connection, gateway } = link
  const { cluster, lane, loss = 0, held = false, message } = connection
  const name = `${node} lane ${lane} to ${cluster} lane ${remoteLaneOf(connection)}`
  const base = { subject: { kind: 'Link', name }, ...seenAt(gateway) }
  const findings: Finding[] = []
  if (held) findings.push({ reason: 'LinkFlaps', severity: 'degraded', seen: message === '' ? HELD : message, ...base })
  if (loss >= LOSSY) {
    const seen = `${Math.round(loss * 100)} % of its last probes got no answer`
    findings.push({ reason: 'LinkLossy', severity: 'degraded', seen, ...base })
  }
  const narrow = narrowText(link)
  if (narrow !== undefined) findings.push({ reason: 'PathMtuReduced', severity: 'notice', seen: narrow, ...base })
  return findings
}

function narrowText({ connection, gateway }: Link): string | undefined {
  const { lane, mtu } = connection
  const far = remoteLaneOf(connection)
  const device = gateway.object.status?.lanes.find((one) => one.lane === lane && (one.remoteLane ?? one.lane) === far)
  if (mtu === undefined || device === undefined || mtu >= device.mtu) return undefined
  return `packets of more than ${mtu} octets do not get there; the device takes ${device.mtu}`
}
