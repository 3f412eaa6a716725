/** The whole table sealane_node of one family as one transaction, and what it has to look like afterwards. Pure. */
import type { NftStatement } from '../../kernel/nft/nft-transaction.ts'
import { type Family, parsePrefix } from '../../model/addresses/ip.ts'
import { NFT_TABLE_NODE } from '../../model/kernel-ids.ts'
import type { Node } from '../../model/objects.ts'
import { usableClusters } from '../../model/lanes/reachability.ts'
import { LABEL_ZONE } from '../../model/spec-constants.ts'
import { addressFamily } from '../address-family.ts'
import {
  type ElementChange,
  type ElementMaps,
  NO_LAYOUT,
  type TableLayout,
  balanceElements,
  elementStatements,
  layout,
} from './balance-elements.ts'
import { LocalBackends, SET_HAIRPIN } from './local-backends.ts'
import { clustersetRange } from '../routes/plan-family-routes.ts'
import { type NodeNftWorld, SET_REMOTE, planNodeNft } from './plan-node-nft.ts'
import type { NodeRouteWorld } from '../routes/node-route-world.ts'
import { clusterValidation } from '../routes/plan-node-routes.ts'
import { SET_OVERLAY_NODES } from './plan-overlay-guard.ts'
import type { PortPlan, ServiceContext } from './plan-service.ts'

export interface TablePlan {
  readonly statements: readonly NftStatement[]
  readonly layout: TableLayout
  readonly localBackends: LocalBackends
}

/** Makes the table from nothing, or in place of an older one, at one stroke: no packet sees half of it. */
export function planTable(world: NodeNftWorld, ports: ReadonlyMap<string, PortPlan>): TablePlan {
  const family = addressFamily(world.family)
  const localBackends = new LocalBackends(
    world.localCidrs.map((text) => parsePrefix(text)),
    family,
  )
  localBackends.apply([...ports].map(([key, after]) => ({ key, before: undefined, after })))
  const chains = layout(ports.values(), NO_LAYOUT, family)
  const additions = [...serviceElements(ports, localBackends), ...nodeElements(world)].map(([map, elements]) => ({
    map,
    remove: [],
    add: [...elements].map(([key, value]) => (value === undefined ? { key } : { key, value })),
  }))
  const statements: NftStatement[] = [
    // "add" first, so that "delete" finds a table whether or not there was one.
    { verb: 'add-table', table: NFT_TABLE_NODE },
    { verb: 'delete-table', table: NFT_TABLE_NODE },
    { verb: 'add-table', table: NFT_TABLE_NODE },
    ...planNodeNft(world),
    ...chains.statements,
    ...elementStatements(additions),
  ]
  return { statements, layout: chains.result, localBackends }
}

/** Every map and set of the table with the elements it must have. */
export function desiredElements(
  world: NodeNftWorld,
  ports: ReadonlyMap<string, PortPlan>,
  localBackends: LocalBackends,
): ElementMaps {
  const remote = new Map(world.remote.map((prefix) => [prefix, undefined]))
  return new Map([...serviceElements(ports, localBackends), ...nodeElements(world), [SET_REMOTE, remote]])
}

/** What has to change in the set of nodes when the world changes and the fixed part of the table does not. */
export function nodeChange(before: NodeNftWorld, after: NodeNftWorld): ElementChange[] {
  const [had, wanted] = [new Set(before.overlayNodes), new Set(after.overlayNodes)]
  const remove = before.overlayNodes.filter((address) => !wanted.has(address))
  const add = after.overlayNodes.filter((address) => !had.has(address)).map((key) => ({ key }))
  return remove.length === 0 && add.length === 0 ? [] : [{ map: SET_OVERLAY_NODES, remove, add }]
}

function nodeElements({ family, overlayNodes }: NodeNftWorld): ElementMaps {
  if (family !== 4) return new Map()
  return new Map([[SET_OVERLAY_NODES, new Map(overlayNodes.map((address) => [address, undefined]))]])
}

export function serviceContext(world: NodeRouteWorld, family: Family): ServiceContext {
  return {
    node: world.node,
    self: world.self,
    zone: zoneOf(world.nodes.find((node) => node.metadata.name === world.node)),
    clustersetIpRange: clustersetRange(world, family),
    reachable: usableClusters(world.self, world.gateways, clusterValidation(world)),
  }
}

function zoneOf(node: Node | undefined): string | undefined {
  const zone = node?.metadata.labels?.[LABEL_ZONE]
  return zone === '' ? undefined : zone
}

function serviceElements(ports: ReadonlyMap<string, PortPlan>, localBackends: LocalBackends): ElementMaps {
  return new Map([...balanceElements(ports), [SET_HAIRPIN, localBackends.elements()]])
}
