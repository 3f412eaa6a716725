/** The text of `sealane diagnose reach`, and of the candidates of a link. Pure. */
import type { GatewayReach, LinkReach, ReachFact, ReachReport } from '../../explain/explain.ts'
import { type KnownRelay, type LinkCandidate, printable } from '../../model/model.ts'
import type { BetterRung } from '../../model/lanes/lanes.ts'
import { STATUS_FORMAT } from './status-screen.ts'
import { agoText } from './gateway-rows.ts'

/** The most links of a gateway that a report for people has, unless it is wide. */
const MOST_LINKS = 20

export function reachDocument(report: ReachReport): Record<string, unknown> {
  return { format: STATUS_FORMAT, area: 'reach', ...report }
}

/** `wide`: with all links, and the candidates of each. */
export function reachText(report: ReachReport, wide: boolean): string {
  const { cluster, health, observedAddress, gateways, silent, takenAt } = report
  const nowMs = Date.parse(takenAt)
  return [
    `${cluster ?? 'not joined'}: ${health} (reach)\n`,
    `the broker sees this cluster at ${observedAddress ?? 'no address that counts'}\n`,
    ...gateways.map((gateway) => gatewayText(gateway, nowMs, wide)),
    ...(silent.length === 0 ? [] : [`gateways that do not report: ${silent.join(', ')}\n`]),
    ...(gateways.length === 0 && silent.length === 0 ? ['no gateway reports\n'] : []),
  ].join('')
}

function gatewayText(gateway: GatewayReach, nowMs: number, wide: boolean): string {
  const { node, seenAt, nat, behindNat, filters, hairpins, mapping, udp, relays, links } = gateway
  const shown = wide ? links : links.slice(0, MOST_LINKS)
  const rest = links.length - shown.length
  return [
    `gateway ${node}\n`,
    row('seen by relays', seenAt.join(', ') || 'by none'),
    row('behind NAT', factText(behindNat)),
    row('NAT keeps ports', factText(nat)),
    row('NAT filters', factText(filters)),
    row('NAT leads back', factText(hairpins)),
    row('router maps ports', factText(mapping)),
    row('UDP passes', factText(udp)),
    ...(relays.length === 0 ? [row('relays', 'none is asked')] : relays.map((relay) => row('relay', relayText(relay)))),
    ...shown.map((link) => linkText(link, nowMs, wide)),
    ...(rest > 0 ? [`  and ${rest} more links: -o wide\n`] : []),
  ].join('')
}

function row(name: string, text: string): string {
  return `  ${name.padEnd(18)} ${text}\n`
}

function factText({ is, reason, why }: ReachFact): string {
  return `${is}${reason === undefined ? '' : ` (${reason})`}: ${why}`
}

function relayText({ name, at, state, proxy, reason, note, rttMs }: KnownRelay): string {
  const parts = [
    `${name}${at === undefined ? '' : ` at UDP ${at}`}: ${state}`,
    rttMs === undefined ? '' : `${rttMs.toFixed(2)} ms`,
    proxy === undefined ? '' : `through the proxy ${proxy}`,
    [reason, note].filter((one) => one !== undefined).join(': '),
  ]
  return parts.filter((part) => part !== '').join(', ')
}

function linkText(link: LinkReach, nowMs: number, wide: boolean): string {
  const { cluster, lane, remoteLane, state, rung, relay, message, notBetter, next, candidates } = link
  const way = rung === undefined ? '' : `, ${rung}${relay === undefined ? '' : ` by ${relay}`}`
  const lanes = `lane ${lane} to lane ${remoteLane}`
  const said = state === 'up' || message === '' ? '' : `: ${message}`
  return [
    `  link to ${cluster}, ${lanes}: ${state}${way}${said}\n`,
    ...notBetter.map((one) => `    not ${betterText(one)}\n`),
    ...(next?.todo === undefined ? [] : [`    to do: ${next.todo}\n`]),
    ...(next === undefined ? [] : [`    next: ${next.command}\n`]),
    ...(wide ? (candidates ?? []).map((one) => `    ${candidateText(one, nowMs)}\n`) : []),
  ].join('')
}

/** `direct: LaneConnecting: nothing has answered at 198.51.100.7:4500` */
export function betterText({ rung, reason, why }: BetterRung): string {
  return printable(`${rung}: ${reason === undefined ? '' : `${reason}: `}${why}`)
}

/** One line for a candidate. `nowMs` is in milliseconds since 1970. */
export function candidateText(one: LinkCandidate, nowMs: number): string {
  const { kind, at, relay, state, since, reason, note, relayRttMs } = one
  const ago = (time: string): string => {
    const ms = nowMs - Date.parse(time)
    return Number.isNaN(ms) ? 'at an unknown time' : agoText(Math.max(0, Math.floor(ms / 1000)))
  }
  const when = since === undefined ? '' : state === 'failed' ? `, first ${ago(since)}` : ` ${ago(since)}`
  const why = [reason, note].filter((part) => part !== undefined).join(': ')
  const name = [kind, relay, at].filter((part) => part !== undefined).join(' ')
  const parts = [
    `${name}: ${state}${when}${why === '' ? '' : ` (${why})`}`,
    measuredText(one, ago),
    relayRttMs === undefined ? '' : `${relayRttMs.toFixed(2)} ms to the relay`,
  ]
  return printable(parts.filter((part) => part !== '').join(', '))
}

function measuredText({ rttMs, loss, mtu, measuredTime, state }: LinkCandidate, ago: (time: string) => string): string {
  if (rttMs === undefined) {
    const why = state === 'in-use' ? 'the link sleeps, or has just come up' : 'it has not carried the link'
    return `not measured: ${why}`
  }
  const figures = [
    `${rttMs.toFixed(2)} ms`,
    ...(loss === undefined ? [] : [`${Math.round(loss * 100)} % loss`]),
    ...(mtu === undefined ? [] : [`MTU ${mtu}`]),
  ]
  return `${figures.join(', ')}${measuredTime === undefined ? '' : `, measured ${ago(measuredTime)}`}`
}
