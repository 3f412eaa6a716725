/** The facts that are read from texts of the kernel and of the resolver. */
import t from 'tap'
import { nameServers, nextHops, readMachineNetwork } from '../../runtime/machine-network.ts'

const ROUTES = `Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth0	00000000	0101A8C0	0003	0	0	100	00000000	0	0	0
eth0	0001A8C0	00000000	0001	0	0	100	00FFFFFF	0	0	0
cni0	00012A0A	0201A8C0	0003	0	0	0	00FFFFFF	0	0	0
eth1	00000000	0101A8C0	0003	0	0	200	00000000	0	0	0
`
t.same(nextHops(ROUTES), ['192.168.1.1', '192.168.1.2'])
t.same(
  nextHops(ROUTES, (fields) => fields[1] === '00000000'),
  ['192.168.1.1'],
)
t.same(nextHops(''), [])
t.same(
  nameServers(
    '# x\nnameserver 10.43.0.10\n nameserver fe80::1%eth0\nnameserver 2001:db8::53\nnameserver nonsense\noptions ndots:5\n',
  ),
  ['10.43.0.10', 'fe80::1', '2001:db8::53'],
)
const machine = await readMachineNetwork()
t.ok(machine.interfaces.every((one) => one.includes('/')))
