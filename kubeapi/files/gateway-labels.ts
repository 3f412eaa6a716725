/** On a site the site file says which nodes are gateways. What reads Nodes finds it there as on a cluster. Pure. */
import { ANNOTATION_PUBLIC_ADDRESS, ANY_LANE_VALUE, LABEL_GATEWAY } from '../../model/lanes/gateway-node.ts'
import type { Node } from '../../model/objects.ts'

export interface NodeGateway {
  readonly node: string
  /** Absent: any that no other gateway has. */
  readonly lane?: number
  readonly publicAddress?: string
}

/** The Node with the label and the address that `gateways` has for it, and with no other ones. */
export function withGatewayLabels(node: Node, gateways: readonly NodeGateway[]): Node {
  const { labels = {}, annotations = {}, ...metadata } = node.metadata
  const row = gateways.find((gateway) => gateway.node === metadata.name)
  const { [LABEL_GATEWAY]: _label, ...otherLabels } = labels
  const { [ANNOTATION_PUBLIC_ADDRESS]: _address, ...otherAnnotations } = annotations
  const label = row === undefined ? {} : { [LABEL_GATEWAY]: row.lane?.toString() ?? ANY_LANE_VALUE }
  const address = row?.publicAddress === undefined ? {} : { [ANNOTATION_PUBLIC_ADDRESS]: row.publicAddress }
  return {
    ...node,
    metadata: { ...metadata, labels: { ...otherLabels, ...label }, annotations: { ...otherAnnotations, ...address } },
  }
}
