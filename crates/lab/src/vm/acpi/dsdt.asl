/*
 * The DSDT of guests of x86-64, in place of QEMU's: see acpi.rs.
 *
 * What the kernel doesn't find by itself on QEMU's `pc`: which addresses are PCI's, and the interrupts of
 * its slots. The kernel takes a table of the same OEM with a higher revision; QEMU's has 1.
 */
DefinitionBlock ("dsdt.aml", "DSDT", 1, "BOCHS ", "BXPC    ", 2)
{
    Device (\_SB.PCI0)
    {
        Name (_HID, EisaId ("PNP0A03"))
        Name (_CRS, ResourceTemplate ()
        {
            WordBusNumber (ResourceProducer, MinFixed, MaxFixed, PosDecode, 0, 0, 0xFF, 0, 0x100)
            IO (Decode16, 0xCF8, 0xCF8, 1, 8)
            WordIO (ResourceProducer, MinFixed, MaxFixed, PosDecode, EntireRange, 0, 0, 0xCF7, 0, 0xCF8)
            WordIO (ResourceProducer, MinFixed, MaxFixed, PosDecode, EntireRange, 0, 0xD00, 0xFFFF, 0, 0xF300)
            /* SeaBIOS places devices from 2 GiB on in a machine with less memory (src/fw/pciinit.c). */
            DWordMemory (ResourceProducer, PosDecode, MinFixed, MaxFixed, NonCacheable, ReadWrite, 0, 0x80000000, 0xFEBFFFFF, 0, 0x7EC00000)
        })

        /* By number of slot and pin. SeaBIOS routes PIRQA and B to 10, C and D to 11, and QEMU pin N of slot S to PIRQ (N + S - 1) mod 4. */
        Method (_PRT)
        {
            Local0 = Package (128) {}
            Local1 = 0
            While (Local1 < 128)
            {
                Local2 = Package (4) {0, 0, 0, 0}
                Local2[0] = ((Local1 >> 2) << 16) | 0xFFFF
                Local2[1] = Local1 & 3
                Local2[3] = 10 + ((((Local1 >> 2) + Local1 + 3) >> 1) & 1)
                Local0[Local1] = Local2
                Local1++
            }
            Return (Local0)
        }
    }

    Name (\_S5, Package () {0, 0, 0, 0})
}
