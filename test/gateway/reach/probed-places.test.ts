/** Which places probes may go to, whatever a relay or a far end says. */
import t from 'tap'
import { placeValidator } from '../../../gateway/reach/plan-candidates.ts'
import { parseAddressPort } from '../../../model/addresses/addresses.ts'
import { RELAY_LAST_PORT, RELAY_PORT } from '../../../model/kernel-ids.ts'
import { world } from '../support/worlds.ts'

t.test('places', async (t) => {
  const here = world({ addresses: [{ device: 'eth0', address: '198.51.100.9/24' }] })
  const mayProbe = placeValidator(here)
  const [pods = ''] = here.own.spec.podCIDRs
  const yes = ['192.0.2.1:20000', '10.250.0.1:4500', `192.0.2.1:${RELAY_LAST_PORT + 1}`]
  const no = [
    ...['127.0.0.1:4500', '224.0.0.1:4500', '255.255.255.255:4500', '0.0.0.0:4500', '169.254.169.254:4500'],
    ...['[2001:db8::1]:4500', '198.51.100.9:4500', '192.0.2.1:53', `192.0.2.1:${RELAY_PORT}`, '244.0.0.1:4500'],
    `${pods.replace(/0\/\d+$/, '7')}:4500`,
  ]
  for (const text of yes) t.equal(mayProbe(parseAddressPort(text)), true, text)
  for (const text of no) t.equal(mayProbe(parseAddressPort(text)), false, text)
})
