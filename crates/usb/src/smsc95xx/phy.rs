//! The internal PHY: a LAN8700 by its number, which `drivers/net/phy/smsc.c` drives. The
//! other end of the cable takes 100 Mbit/s, full duplex, and negotiation is done at once.

const BMCR: usize = 0;
const BMSR: usize = 1;
const ID1: usize = 2;
const ID2: usize = 3;
const ADVERTISE: usize = 4;
const PARTNER: usize = 5;
const EXPANSION: usize = 6;
/// `MII_LAN83C185_CTRL_STATUS`.
const MODE: usize = 17;
/// `MII_LAN83C185_SPECIAL_MODES`.
const SPECIAL_MODES: usize = 18;
/// `MII_LAN83C185_ISF`.
const INTERRUPTS: usize = 29;
/// `MII_LAN83C185_IM`.
const INTERRUPT_MASK: usize = 30;
const SPECIAL: usize = 31;

const BMCR_RESET: u16 = 0x8000;
const BMCR_NEGOTIATE: u16 = 0x1000;
const BMCR_POWER_DOWN: u16 = 0x0800;
const BMCR_RESTART: u16 = 0x0200;
/// 100 Mbit/s, full duplex, negotiating.
const BMCR_DEFAULT: u16 = 0x3100;

/// 10 and 100 Mbit/s with either duplex, negotiates, extended registers.
const BMSR_ABILITIES: u16 = 0x7809;
const BMSR_NEGOTIATED: u16 = 0x0020;
const BMSR_LINK: u16 = 0x0004;

const MODE_ENERGY: u16 = 0x0002;

const NEGOTIATED: u16 = 1 << 6;
const LINK_DOWN: u16 = 1 << 4;
const ENERGY_ON: u16 = 1 << 7;

#[derive(Debug)]
pub(super) struct Phy {
    registers: [u16; 32],
    carrier: bool,
    /// The link was down since the host last looked: IEEE 802.3, 22.2.4.2.13.
    was_down: bool,
}

impl Phy {
    pub(super) fn new() -> Phy {
        let mut phy = Phy { registers: [0; 32], carrier: false, was_down: true };
        phy.reset();
        phy
    }

    fn reset(&mut self) {
        self.registers = [0; 32];
        self.registers[BMCR] = BMCR_DEFAULT;
        self.registers[ID1] = 0x0007;
        self.registers[ID2] = 0xc0c3;
        self.registers[ADVERTISE] = 0x01e1;
        self.registers[SPECIAL_MODES] = 0x00e1;
    }

    /// Whether frames pass.
    pub(super) fn link(&self) -> bool {
        self.carrier && self.registers[BMCR] & BMCR_POWER_DOWN == 0
    }

    /// Whether an interrupt is pending for the host.
    pub(super) fn interrupts(&self) -> bool {
        self.registers[INTERRUPTS] & self.registers[INTERRUPT_MASK] != 0
    }

    pub(super) fn set_carrier(&mut self, up: bool) {
        self.change(|phy| phy.carrier = up);
    }

    /// Change the link's state, and note the interrupts that this causes.
    fn change(&mut self, change: impl FnOnce(&mut Phy)) {
        let before = self.link();
        change(self);
        match (before, self.link()) {
            (false, true) => self.registers[INTERRUPTS] |= NEGOTIATED | ENERGY_ON,
            (true, false) => {
                self.was_down = true;
                self.registers[INTERRUPTS] |= LINK_DOWN;
            }
            _ => {}
        }
    }

    fn negotiates(&self) -> bool {
        self.registers[BMCR] & BMCR_NEGOTIATE != 0
    }

    /// Reading a register can clear it.
    pub(super) fn read(&mut self, register: usize) -> u16 {
        let link = self.link();
        match register {
            BMSR => {
                let is_down = std::mem::replace(&mut self.was_down, !link);
                let mut status = BMSR_ABILITIES;
                if link && self.negotiates() {
                    status |= BMSR_NEGOTIATED;
                }
                if link && !is_down {
                    status |= BMSR_LINK;
                }
                status
            }
            // All abilities, pause frames, and it has heard ours.
            PARTNER if link => 0x4de1,
            EXPANSION if link => 1,
            MODE if link => self.registers[MODE] | MODE_ENERGY,
            // 100 Mbit/s, full duplex, negotiated.
            SPECIAL if link => 0x1058,
            INTERRUPTS => std::mem::take(&mut self.registers[INTERRUPTS]),
            _ => self.registers[register],
        }
    }

    pub(super) fn write(&mut self, register: usize, value: u16) {
        match register {
            BMCR if value & BMCR_RESET != 0 => self.change(Phy::reset),
            BMCR => {
                let restarts = value & (BMCR_NEGOTIATE | BMCR_RESTART);
                self.change(|phy| phy.registers[BMCR] = value & !BMCR_RESTART);
                if self.link() && restarts == BMCR_NEGOTIATE | BMCR_RESTART {
                    self.registers[INTERRUPTS] |= NEGOTIATED;
                }
            }
            BMSR | ID1 | ID2 | PARTNER | EXPANSION | INTERRUPTS | SPECIAL => {}
            _ => self.registers[register] = value,
        }
    }
}
