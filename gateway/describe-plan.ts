/** A gateway's plan in the words of ip, wg and nft: dry run, /debug/plan and golden tests. */
import { formatAddress, formatLink, formatRoute, formatRule } from '../kernel/route/format-ip.ts'
import { formatNft } from '../kernel/nft/format-nft.ts'
import { formatInterface, formatPeer } from '../kernel/wireguard/format-wg.ts'
import { type GatewayPlan, planGateway } from './plan-gateway.ts'
import type { LanePlan } from './cable/wireguard/plan-lanes.ts'
import type { GatewayWorld } from './world.ts'

/** From the world to the text of all that would be applied. Holds no private key. */
export function describeGatewayPlan(world: GatewayWorld): string {
  return gatewayPlanText(planGateway(world))
}

export function gatewayPlanText(plan: GatewayPlan): string {
  const refusals = plan.lanes.refusals.map((refusal) => `# refused: ${refusal.subject}: ${refusal.message}\n`)
  const routes = [...plan.routes.rules.map(formatRule), ...plan.routes.routes.map(formatRoute)]
  const tables = formatNft(plan.nft, 'ip') + formatNft(plan.nft6, 'ip6')
  return [...refusals, ...plan.lanes.lanes.map(laneText), `${routes.join('\n')}\n`, tables].join('\n')
}

/** A lane device: the `ip` commands, then what `wg showconf` would print, without the private key. */
export function laneText(lane: LanePlan): string {
  const { device, mtu, address, config } = lane
  const ip = [formatLink({ kind: 'wireguard', name: device, mtu }), formatAddress({ device, address })]
  const planning = [...lane.peers, ...lane.successors]
  const peers = config.peers.map((peer, i) => {
    const planned = planning[i]
    const choice = planned?.choice
    const why = `${choice?.how ?? ''}${choice?.address === undefined ? '' : ` ${choice.address}`}: ${choice?.why ?? ''}`
    return `\n# ${planned?.cluster ?? ''}, node ${planned?.node ?? ''}: ${why}\n${formatPeer(peer)}`
  })
  return `${ip.join('\n')}\n# wg syncconf ${device}\n${formatInterface(config)}${peers.join('')}`
}
