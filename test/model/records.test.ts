import t from 'tap'
import { parseClusterId } from '../../model/ids.ts'
import * as kernelIds from '../../model/kernel-ids.ts'
import { laneDevice, lanePort } from '../../model/kernel-ids.ts'
import { parsePrefix, overlaps } from '../../model/values/ip.ts'
import { endpointName } from '../../model/objects.ts'
import { recordKeyText } from '../../model/records.ts'

t.test('keys as text', async (t) => {
  const cluster = parseClusterId('milano')
  t.equal(
    recordKeyText({ cluster, kind: 'ServiceExport', namespace: 'shop', name: 'web' }),
    'milano/ServiceExport/shop/web',
  )
  t.equal(
    recordKeyText({ cluster: '', kind: 'ClusterSetIP', namespace: 'shop', name: 'web' }),
    '/ClusterSetIP/shop/web',
  )
  t.equal(endpointName('milano', 'gw', 0), 'milano.gw-lane0')
})

t.test('kernel ids do not collide', async (t) => {
  t.equal(laneDevice(3), 'sealane3')
  t.equal(lanePort(3), 4503)
  const tables = [kernelIds.ROUTE_TABLE_FROM_LANES, kernelIds.ROUTE_TABLE_LANES, kernelIds.ROUTE_TABLE_NODE]
  t.equal(new Set(tables).size, 3)
  t.same([...tables].sort(), tables, 'looked up in this order')
  const { NEXT_HOP_IDS: all, NEXT_HOP_IDS_LANES: lanes, NEXT_HOP_IDS_NODE: node } = kernelIds
  const ends = [all.first, lanes.first, lanes.last, node.first, node.last, all.last]
  t.same(
    [...ends].sort((a, b) => a - b),
    ends,
    'blocks of next-hop ids lie apart, within ours',
  )
  t.ok(laneDevice(255).length <= 15, 'fits an interface name')
  t.notMatch(kernelIds.VXLAN_DEVICE, /^sealane\d/)
  t.notOk(kernelIds.VXLAN_PORT >= lanePort(0) && kernelIds.VXLAN_PORT <= lanePort(255), 'outside the lanes ports')
  t.ok(kernelIds.LANE_PROBE_PORT < lanePort(0))
  const ranges = [kernelIds.DEFAULT_GLOBAL_RANGE, kernelIds.DEFAULT_CLUSTERSET_IP_RANGE, kernelIds.LANE_ADDRESS_RANGE]
  for (const a of ranges)
    for (const b of ranges) if (a !== b) t.notOk(overlaps(parsePrefix(a), parsePrefix(b)), `${a} ${b}`)
})
